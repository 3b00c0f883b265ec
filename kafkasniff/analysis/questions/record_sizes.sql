WITH sized AS (
  SELECT
    coalesce(topic, topic_id) AS topic,
    direction,
    octet_length(key) AS key_size,
    octet_length(value) AS value_size,
    {header_bytes} AS headers_size
  FROM {records}
  WHERE control IS NULL AND direction IN ({directions})
),
counted AS (
  SELECT topic, direction, 'key' AS field, key_size AS size, count(*) AS n
  FROM sized GROUP BY topic, direction, key_size
  UNION ALL
  SELECT topic, direction, 'value' AS field, value_size AS size, count(*) AS n
  FROM sized GROUP BY topic, direction, value_size
  UNION ALL
  SELECT topic, direction, 'headers' AS field, headers_size AS size, count(*) AS n
  FROM sized GROUP BY topic, direction, headers_size
),
ranked AS (
  SELECT
    topic, direction, field, size, n,
    sum(n) OVER (
      PARTITION BY topic, direction, field ORDER BY size NULLS LAST
      ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
    ) AS upto,
    sum(CASE WHEN size IS NOT NULL THEN n END) OVER (PARTITION BY topic, direction, field) AS measured
  FROM counted
)
SELECT
  topic,
  direction,
  field,
  CAST(sum(n) AS BIGINT) AS records,
  CAST(coalesce(sum(CASE WHEN size IS NULL THEN n END), 0) AS BIGINT) AS nulls,
  min(CASE WHEN upto * 100 >= measured * 50 THEN size END) AS p50,
  min(CASE WHEN upto * 100 >= measured * 99 THEN size END) AS p99,
  max(size) AS most
FROM ranked
GROUP BY topic, direction, field
