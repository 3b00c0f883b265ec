// kafkajs that sends a record every 200 ms: SECONDS BOOTSTRAP TOPIC. Failures do not end it.
const { Kafka, logLevel } = require("kafkajs");

const [seconds, bootstrap, topic] = process.argv.slice(2);
const kafka = new Kafka({ clientId: "kafkajs", brokers: [bootstrap], logLevel: logLevel.NOTHING });
const deadline = Date.now() + Number(seconds) * 1000;

(async () => {
  const producer = kafka.producer();
  while (Date.now() < deadline) {
    await producer.connect().then(() => producer.send({ topic, messages: [{ value: "made up" }] })).catch(() => undefined);
    await new Promise((resolve) => setTimeout(resolve, 200));
  }
  process.exit(0);
})();
