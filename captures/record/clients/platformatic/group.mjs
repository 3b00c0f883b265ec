// Reads two topics as the members of a group with @platformatic/kafka; the addresses of brokers are its arguments.
const { Admin, Consumer, Producer, stringDeserializers, stringSerializers } = await import(
  `${process.env.NODE_PATH}/@platformatic/kafka/dist/index.js`
)

const bootstrapBrokers = [process.argv[2]]
const topic = 'group-metadata-2'
const admin = new Admin({ clientId: 'platformatic-admin', bootstrapBrokers })
await admin.createTopics({ topics: [topic], partitions: 2, replicas: 1 })
await admin.close()

const producer = new Producer({ clientId: 'platformatic-producer', bootstrapBrokers, serializers: stringSerializers })
await producer.send({ messages: [{ topic, key: 'k', value: 'v' }] })
await producer.close()

const consumer = new Consumer({
  clientId: 'platformatic-consumer', groupId: 'readers-in-node', bootstrapBrokers, deserializers: stringDeserializers,
  maxWaitTime: 100
})
const stream = await consumer.consume({ topics: [topic], mode: 'earliest' })
for await (const message of stream) {
  if (message.value === 'v') {
    break
  }
}
await stream.close()
await consumer.close()
