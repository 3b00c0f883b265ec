WITH talks AS (
  SELECT
    CASE
      WHEN api = 'Produce' THEN 'producer'
      WHEN api IN ('OffsetCommit', 'TxnOffsetCommit') THEN 'group'
      WHEN {is_follower} THEN 'follower'
      ELSE 'consumer'
    END AS part_of,
    CASE WHEN api IN ('OffsetCommit', 'TxnOffsetCommit') THEN group_id ELSE client_id END AS who,
    CASE WHEN api IN ('OffsetCommit', 'TxnOffsetCommit') THEN NULL ELSE client_ip END AS client_ip,
    time_ns, topics, partitions
  FROM {exchanges}
  WHERE api IN ({apis})
),
parts AS (
  SELECT
    part_of, who, client_ip, time_ns, coalesce(one.topic, one.topic_id) AS topic, one.partition AS part, one.bytes AS bytes,
    one.record_count AS records
  FROM (SELECT part_of, who, client_ip, time_ns, explode(partitions) AS one FROM talks) AS exploded
),
named AS (
  SELECT part_of, who, client_ip, time_ns, topic, bytes, records FROM parts
  UNION ALL
  -- A Fetch names its topics even if its session keeps them.
  SELECT part_of, who, client_ip, time_ns, topic, NULL AS bytes, NULL AS records
  FROM (SELECT part_of, who, client_ip, time_ns, explode(topics) AS topic FROM talks) AS exploded
),
clients AS (
  SELECT
    topic, part_of, who, client_ip, coalesce(sum(records), 0) AS records, coalesce(sum(bytes), 0) AS bytes,
    min(time_ns) AS first_ns, max(time_ns) AS last_ns
  FROM named
  WHERE topic IS NOT NULL
  GROUP BY topic, part_of, who, client_ip
),
ranked AS (
  SELECT
    topic, part_of, who,
    row_number() OVER (
      PARTITION BY topic, part_of ORDER BY bytes DESC, records DESC, who NULLS FIRST, client_ip NULLS FIRST
    ) AS place,
    count(*) OVER (PARTITION BY topic, part_of) AS clients,
    sum(records) OVER (PARTITION BY topic, part_of) AS records,
    sum(bytes) OVER (PARTITION BY topic, part_of) AS bytes,
    min(first_ns) OVER (PARTITION BY topic) AS first_ns,
    max(last_ns) OVER (PARTITION BY topic) AS last_ns
  FROM clients
),
sizes AS (
  SELECT topic, count(DISTINCT part) AS partitions FROM parts WHERE topic IS NOT NULL GROUP BY topic
)
SELECT
  ranked.topic, part_of, who, place, clients, CAST(records AS BIGINT) AS records, CAST(bytes AS BIGINT) AS bytes,
  first_ns, last_ns, coalesce(sizes.partitions, 0) AS partitions
FROM ranked
LEFT JOIN sizes ON sizes.topic = ranked.topic
WHERE place <= {most}
