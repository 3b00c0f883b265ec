WITH told AS (
  SELECT
    transactional_id, client_id, client_ip, api, time_ns, connection_id, exchange_id, duration_us, latency_us, status,
    error, error_code, error_count, group_id, record_count, partitions,
    CASE WHEN api = 'EndTxn' THEN get_json_object(request_body, '$.committed') END AS committed,
    lag(api) OVER (PARTITION BY transactional_id ORDER BY time_ns, connection_id, exchange_id) AS earlier
  FROM {exchanges}
  WHERE transactional_id IS NOT NULL
    AND api IN ({apis})
    -- Later versions are for brokers, which verify partitions.
    AND NOT (api = 'AddPartitionsToTxn' AND api_version > 3)
),
numbered AS (
  SELECT
    *,
    row_number() OVER (PARTITION BY transactional_id ORDER BY time_ns, connection_id, exchange_id) AS turn,
    sum(
      CASE
        WHEN api = 'InitProducerId' OR earlier = 'InitProducerId' OR (earlier = 'EndTxn' AND api <> 'EndTxn') THEN 1
        ELSE 0
      END
    ) OVER (
      PARTITION BY transactional_id ORDER BY time_ns, connection_id, exchange_id
      ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
    ) AS nth
  FROM told
),
parts AS (
  SELECT transactional_id, nth, coalesce(one.topic, one.topic_id) AS topic, one.partition AS part, sum(one.bytes) AS bytes
  FROM (
    SELECT transactional_id, nth, explode(partitions) AS one FROM numbered WHERE api IN ('Produce', 'AddPartitionsToTxn')
  ) AS exploded
  GROUP BY transactional_id, nth, coalesce(one.topic, one.topic_id), one.partition
),
sizes AS (
  SELECT transactional_id, nth, count(DISTINCT topic) AS topics, count(*) AS partitions, sum(bytes) AS bytes
  FROM parts
  GROUP BY transactional_id, nth
),
whole AS (
  SELECT
    transactional_id,
    nth,
    max(client_id) AS client_id,
    max(client_ip) AS client_ip,
    min(time_ns) AS first_ns,
    max(time_ns + greatest(coalesce(duration_us, 0), 0) * 1000) AS last_ns,
    -- The last answer to EndTxn decides; until then the request says what the producer wants.
    max_by(committed, CASE WHEN committed IS NOT NULL THEN turn END) AS committed,
    count(CASE WHEN api = 'EndTxn' AND status = 'answered' AND error_code = 0 THEN 1 END) AS ended,
    max(CASE WHEN api = 'EndTxn' THEN latency_us END) AS end_us,
    count(CASE WHEN api = 'Produce' THEN 1 END) AS produces,
    sum(CASE WHEN api = 'Produce' THEN record_count END) AS records,
    max(CASE WHEN api IN ('TxnOffsetCommit', 'AddOffsetsToTxn') THEN group_id END) AS group_id,
    count(CASE WHEN error_count > 0 THEN 1 END) AS with_errors,
    max_by(CASE WHEN error_code <> 0 THEN error END, CASE WHEN error_code <> 0 THEN turn END) AS error
  FROM numbered
  WHERE api <> 'InitProducerId'
  GROUP BY transactional_id, nth
)
SELECT
  whole.*,
  coalesce(sizes.topics, 0) AS topics,
  coalesce(sizes.partitions, 0) AS partitions,
  CAST(coalesce(sizes.bytes, 0) AS BIGINT) AS bytes
FROM whole
LEFT JOIN sizes ON sizes.transactional_id = whole.transactional_id AND sizes.nth = whole.nth
