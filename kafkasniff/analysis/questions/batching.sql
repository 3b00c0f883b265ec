WITH parts AS (
  SELECT
    connection_id, client_id, coalesce(one.topic, one.topic_id) AS topic, one.compression AS compression,
    one.batch_count AS batch_count, one.record_count AS record_count, one.bytes AS bytes
  FROM (SELECT connection_id, client_id, explode(partitions) AS one FROM {exchanges} WHERE api IN ({apis})) AS exploded
),
batches AS (
  SELECT
    connection_id, topic, compression, client_id, count(*) AS exchanges, sum(batch_count) AS batches,
    sum(record_count) AS records, sum(bytes) AS bytes
  FROM parts
  WHERE batch_count > 0
  GROUP BY connection_id, topic, compression, client_id
),
alone AS (
  -- A connection normally has one client id; if it has two, the sender of a record is unknown.
  SELECT connection_id, topic, compression FROM batches GROUP BY connection_id, topic, compression HAVING count(*) = 1
),
payload AS (
  SELECT
    connection_id, coalesce(topic, topic_id) AS topic, compression, count(*) AS seen,
    sum(coalesce(octet_length(key), 0) + coalesce(octet_length(value), 0) + {header_bytes}) AS payload_bytes
  FROM {records}
  WHERE api IN ({apis})
  GROUP BY connection_id, coalesce(topic, topic_id), compression
),
of_one AS (
  SELECT payload.connection_id, payload.topic, payload.compression, payload.seen, payload.payload_bytes
  FROM payload
  JOIN alone
    ON alone.connection_id = payload.connection_id AND alone.topic = payload.topic
    AND alone.compression = payload.compression
)
SELECT
  batches.topic AS topic,
  batches.client_id AS client_id,
  batches.compression AS compression,
  CAST(sum(batches.exchanges) AS BIGINT) AS exchanges,
  CAST(coalesce(sum(batches.batches), 0) AS BIGINT) AS batches,
  CAST(coalesce(sum(batches.records), 0) AS BIGINT) AS records,
  CAST(coalesce(sum(batches.bytes), 0) AS BIGINT) AS bytes,
  CAST(sum(of_one.seen) AS BIGINT) AS seen,
  CAST(sum(of_one.payload_bytes) AS BIGINT) AS payload_bytes
FROM batches
LEFT JOIN of_one
  ON of_one.connection_id = batches.connection_id AND of_one.topic = batches.topic
  AND of_one.compression = batches.compression
GROUP BY batches.topic, batches.client_id, batches.compression
