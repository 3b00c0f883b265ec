WITH talks AS (
  SELECT
    CASE WHEN api = 'Produce' THEN 'producer' WHEN {is_follower} THEN 'follower' ELSE 'consumer' END AS role,
    {client}, connection_id, exchange_id, time_ns, topics, partitions
  FROM {exchanges}
  WHERE api IN ({apis})
),
named AS (
  SELECT
    role, {client}, connection_id, exchange_id, time_ns, coalesce(one.topic, one.topic_id) AS topic,
    one.partition AS part, one.record_count AS records, one.bytes AS bytes
  FROM (
    SELECT role, {client}, connection_id, exchange_id, time_ns, explode(partitions) AS one FROM talks
  ) AS exploded
  UNION ALL
  -- A Fetch names its topics even if its session keeps them.
  SELECT
    role, {client}, connection_id, exchange_id, time_ns, topic, NULL AS part, NULL AS records, NULL AS bytes
  FROM (
    SELECT role, {client}, connection_id, exchange_id, time_ns, explode(topics) AS topic FROM talks
  ) AS exploded
),
clients AS (
  SELECT
    topic, role, {client},
    count(DISTINCT concat(connection_id, ' ', exchange_id)) AS exchanges,
    sum(records) AS records,
    sum(bytes) AS bytes,
    count(DISTINCT part) AS partitions,
    min(time_ns) AS first_ns,
    max(time_ns) AS last_ns
  FROM named
  GROUP BY topic, role, {client}
),
members AS ({members})
SELECT
  topic, role, clients.client_id AS client_id, clients.client_ip AS client_ip, software_name, software_version,
  CASE WHEN role = 'consumer' THEN group_id END AS group_id, exchanges,
  CAST(coalesce(records, 0) AS BIGINT) AS records, CAST(coalesce(bytes, 0) AS BIGINT) AS bytes, partitions,
  first_ns, last_ns
FROM clients
LEFT JOIN members
  ON members.client_id IS NOT DISTINCT FROM clients.client_id AND members.client_ip IS NOT DISTINCT FROM clients.client_ip
