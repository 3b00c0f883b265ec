// kafkajs: produce (gzip), a group that reads and commits, a transaction, admin calls.
const { Kafka, CompressionTypes, logLevel } = require("kafkajs");
const { version } = require("kafkajs/package.json");

const report = (kind, fields) => process.stdout.write(JSON.stringify({ kind, ...fields }) + "\n");
const text = (buffer) => (buffer === null || buffer === undefined ? null : buffer.toString());
const brokers = [process.argv[2]];
const logCreator = () => ({ log }) => process.stderr.write(JSON.stringify(log) + "\n");
const kafka = new Kafka({ clientId: "js-client", brokers, logLevel: logLevel.DEBUG, logCreator });
const topic = "js-topic";
const start = 1700000000000;

async function produce(transactional) {
  const settings = transactional ? { transactionalId: "js-transaction", maxInFlightRequests: 1, idempotent: true } : {};
  const producer = kafka.producer({ allowAutoTopicCreation: false, ...settings });
  await producer.connect();
  const sender = transactional ? await producer.transaction() : producer;
  for (const [name, compression] of [["none", CompressionTypes.None], ["gzip", CompressionTypes.GZIP]]) {
    const messages = [
      { key: "key-" + name, value: "value " + name + " of a message that repeats, repeats, repeats", headers: { trace: "abc" } },
      { key: null, value: null },
    ].map((message, index) => ({ ...message, partition: 0, timestamp: String(start + index) }));
    const [done] = await sender.send({ topic, compression, acks: -1, messages });
    messages.forEach((message, index) =>
      report("produced", {
        topic, partition: 0, offset: Number(done.baseOffset) + index, timestamp: start + index, key: message.key,
        value: message.value, headers: Object.entries(message.headers ?? {}), codec: name, transactional,
      }));
  }
  if (transactional) {
    await sender.commit();
    report("transaction", { transactional_id: "js-transaction", result: "commit" });
  }
  await producer.disconnect();
}

async function consume(expected) {
  const consumer = kafka.consumer({ groupId: "js-group", heartbeatInterval: 500, maxWaitTimeInMs: 300 });
  await consumer.connect();
  await consumer.subscribe({ topics: [topic], fromBeginning: true });
  consumer.on(consumer.events.GROUP_JOIN, ({ payload }) =>
    report("assigned", { group: "js-group", member_id: payload.memberId, protocol: payload.groupProtocol, assignment: payload.memberAssignment }));
  let seen = 0;
  await new Promise((resolve, reject) => {
    const timer = setTimeout(() => reject(new Error("not all records came back")), 30000);
    consumer.run({
      eachMessage: async ({ partition, message }) => {
        const headers = Object.entries(message.headers ?? {}).map(([key, value]) => [key, text(value)]);
        report("consumed", {
          topic, partition, offset: Number(message.offset), timestamp: Number(message.timestamp), key: text(message.key),
          value: text(message.value), headers,
        });
        if (++seen === expected) {
          clearTimeout(timer);
          resolve();
        }
      },
    }).catch(reject);
  });
  await consumer.disconnect();
  report("left", { group: "js-group" });
}

async function main() {
  report("client", { name: "kafkajs", version });
  const admin = kafka.admin();
  await admin.connect();
  await admin.createTopics({ topics: [{ topic, numPartitions: 2 }], waitForLeaders: true });
  report("created", { topic, partitions: 2 });
  await produce(false);
  await produce(true);
  await consume(8);
  report("offsets", { group: "js-group", offsets: await admin.fetchOffsets({ groupId: "js-group", topics: [topic] }) });
  report("topic_offsets", { topic, offsets: await admin.fetchTopicOffsets(topic) });
  report("described_groups", await admin.describeGroups(["js-group"]).then(({ groups }) => ({
    groups: groups.map(({ groupId, state, protocolType }) => ({ groupId, state, protocolType })) })));
  await admin.deleteGroups(["js-group"]);
  await admin.deleteTopics({ topics: [topic] });
  report("deleted", { topic });
  await admin.disconnect();
}

main().catch((error) => {
  process.stderr.write(String(error.stack) + "\n");
  process.exit(1);
});
