// kafkajs over TLS: a topic, two records, and a group that reads them; `node --tls-keylog=FILE` logs the secrets.
const { readFileSync } = require("fs");
const { Kafka, logLevel } = require("kafkajs");
const { version } = require("kafkajs/package.json");

const report = (kind, fields) => process.stdout.write(JSON.stringify({ kind, ...fields }) + "\n");
const logCreator = () => ({ log }) => process.stderr.write(JSON.stringify(log) + "\n");
const brokers = [process.argv[2].replace("127.0.0.1", "localhost")];
const ssl = { ca: [readFileSync(`${process.env.CERTIFICATES}/ca.pem`, "utf-8")] };
const kafka = new Kafka({ clientId: "js-client", brokers, ssl, logLevel: logLevel.DEBUG, logCreator });
const topic = "js-topic";
const start = 1700000000000;

async function main() {
  report("client", { name: "kafkajs", version });
  const admin = kafka.admin();
  await admin.connect();
  await admin.createTopics({ topics: [{ topic, numPartitions: 1 }], waitForLeaders: true });
  report("created", { topic, partitions: 1 });
  await admin.disconnect();

  const producer = kafka.producer({ allowAutoTopicCreation: false });
  await producer.connect();
  const messages = [{ key: "one", value: "first" }, { key: null, value: "second" }].map((message, index) => ({
    ...message, partition: 0, timestamp: String(start + index) }));
  const [done] = await producer.send({ topic, acks: -1, messages });
  messages.forEach(({ key, value }, index) =>
    report("produced", {
      topic, partition: 0, offset: Number(done.baseOffset) + index, timestamp: start + index, key, value, headers: [], codec: "none",
    }));
  await producer.disconnect();

  const consumer = kafka.consumer({ groupId: "js-group", heartbeatInterval: 1000, maxWaitTimeInMs: 300 });
  await consumer.connect();
  await consumer.subscribe({ topics: [topic], fromBeginning: true });
  let seen = 0;
  await new Promise((resolve, reject) => {
    const timer = setTimeout(() => reject(new Error("not all records came back")), 30000);
    consumer.run({
      eachMessage: async ({ partition, message }) => {
        report("consumed", {
          topic, partition, offset: Number(message.offset), timestamp: Number(message.timestamp),
          key: message.key && message.key.toString(), value: message.value.toString(), headers: [],
        });
        if (++seen === messages.length) {
          clearTimeout(timer);
          resolve();
        }
      },
    }).catch(reject);
  });
  await consumer.disconnect();
  report("left", { group: "js-group" });
}

main().catch((error) => {
  process.stderr.write(String(error.stack) + "\n");
  process.exit(1);
});
