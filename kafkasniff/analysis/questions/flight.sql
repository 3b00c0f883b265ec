WITH parts AS (
  SELECT
    connection_id, exchange_id, api, client_id, client_ip, group_id, time_ns, latency_us, client_rack,
    coalesce(one.topic, one.topic_id) AS topic, one.partition AS part, one.offset AS start, one.batch_count AS batch_count
  FROM (
    SELECT
      connection_id, exchange_id, api, client_id, client_ip, group_id, time_ns, latency_us, {rack} AS client_rack,
      explode(partitions) AS one
    FROM {exchanges}
    WHERE api IN ({apis}) AND status = 'answered' AND coalesce(sender, 'client') = 'client'
      AND NOT {is_follower}
  ) AS exploded
  WHERE one.error_code = 0
),
members AS ({members}),
carried AS (
  SELECT
    connection_id, exchange_id, direction, coalesce(topic, topic_id) AS topic, {records}.partition AS part,
    {records}.offset AS place, unix_micros(time) * 1000 AS carried_ns
  FROM {records}
  WHERE control IS NULL AND api IN ('Produce', 'Fetch', 'ShareFetch')
),
written AS (
  SELECT
    parts.topic AS topic, parts.part AS part, parts.start + carried.place AS place, min(parts.time_ns) AS produced_ns,
    min(parts.time_ns + parts.latency_us * 1000) AS acknowledged_ns
  FROM carried
  JOIN parts
    ON parts.connection_id = carried.connection_id AND parts.exchange_id = carried.exchange_id
    AND parts.topic = carried.topic AND parts.part = carried.part
  -- The records of several batches have no common count.
  WHERE carried.direction = 'request' AND parts.api = 'Produce' AND parts.start >= 0 AND parts.batch_count = 1
  GROUP BY parts.topic, parts.part, parts.start + carried.place
),
got AS (
  SELECT
    parts.topic AS topic, parts.part AS part, carried.place AS place, min(carried.carried_ns) AS fetched_ns,
    coalesce(parts.group_id, members.group_id) AS group_id, parts.client_rack AS client_rack,
    CASE WHEN coalesce(parts.group_id, members.group_id) IS NULL THEN parts.client_id END AS client_id
  FROM carried
  JOIN parts
    ON parts.connection_id = carried.connection_id AND parts.exchange_id = carried.exchange_id
    AND parts.topic = carried.topic AND parts.part = carried.part
  LEFT JOIN members ON members.client_id = parts.client_id AND members.client_ip = parts.client_ip
  -- A batch may begin before the offset that is asked for.
  WHERE carried.direction = 'response' AND carried.place >= coalesce(parts.start, 0)
  GROUP BY
    parts.topic, parts.part, carried.place, coalesce(parts.group_id, members.group_id), parts.client_rack,
    CASE WHEN coalesce(parts.group_id, members.group_id) IS NULL THEN parts.client_id END
),
marked AS (
  SELECT topic, part, group_id, client_id, client_rack, place, fetched_ns, CAST(NULL AS BIGINT) AS committed_ns FROM got
  UNION ALL
  SELECT
    topic, part, group_id, NULL AS client_id, NULL AS client_rack, start - 1 AS place, NULL AS fetched_ns,
    time_ns + latency_us * 1000 AS committed_ns
  FROM parts
  WHERE api IN ('OffsetCommit', 'TxnOffsetCommit')
),
settled AS (
  SELECT
    topic, part, group_id, client_id, client_rack, place, fetched_ns,
    -- The first commit of an offset beyond the record.
    min(committed_ns) OVER (
      PARTITION BY topic, part, group_id ORDER BY place DESC RANGE BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
    ) AS committed_ns
  FROM marked
),
flown AS (
  SELECT
    written.topic AS topic, settled.group_id AS group_id, settled.client_id AS client_id, settled.client_rack AS client_rack,
    written.acknowledged_ns - written.produced_ns AS acknowledged_ns,
    settled.fetched_ns - written.produced_ns AS fetched_ns,
    CASE WHEN settled.committed_ns >= settled.fetched_ns THEN settled.committed_ns - settled.fetched_ns END AS committed_ns
  FROM written
  LEFT JOIN settled
    ON settled.topic = written.topic AND settled.part = written.part AND settled.place = written.place
    AND settled.fetched_ns IS NOT NULL
),
legs AS (
  SELECT topic, group_id, client_id, client_rack, 'acknowledged' AS leg, acknowledged_ns AS measure FROM flown
  UNION ALL
  SELECT topic, group_id, client_id, client_rack, 'fetched' AS leg, fetched_ns AS measure FROM flown
  UNION ALL
  SELECT topic, group_id, client_id, client_rack, 'committed' AS leg, committed_ns AS measure FROM flown
),
counted AS (
  SELECT {keys}, leg, measure, count(*) AS n FROM legs GROUP BY {keys}, leg, measure
),
ranked AS ({ranked})
SELECT
  {keys},
  leg,
  CAST(sum(n) AS BIGINT) AS records,
  CAST(max(measured) AS BIGINT) AS measured,
  min(CASE WHEN upto * 100 >= measured * 50 THEN measure END) AS p50,
  min(CASE WHEN upto * 100 >= measured * 99 THEN measure END) AS p99,
  max(measure) AS most
FROM ranked
GROUP BY {keys}, leg
