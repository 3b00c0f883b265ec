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
  SELECT topic, direction, 'key' AS field, key_size AS measure, count(*) AS n
  FROM sized GROUP BY topic, direction, key_size
  UNION ALL
  SELECT topic, direction, 'value' AS field, value_size AS measure, count(*) AS n
  FROM sized GROUP BY topic, direction, value_size
  UNION ALL
  SELECT topic, direction, 'headers' AS field, headers_size AS measure, count(*) AS n
  FROM sized GROUP BY topic, direction, headers_size
),
ranked AS ({ranked})
SELECT
  topic,
  direction,
  field,
  CAST(sum(n) AS BIGINT) AS records,
  CAST(coalesce(sum(CASE WHEN measure IS NULL THEN n END), 0) AS BIGINT) AS nulls,
  min(CASE WHEN upto * 100 >= measured * 50 THEN measure END) AS p50,
  min(CASE WHEN upto * 100 >= measured * 99 THEN measure END) AS p99,
  max(measure) AS most
FROM ranked
GROUP BY topic, direction, field
