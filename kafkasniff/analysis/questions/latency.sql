WITH timed AS (
  SELECT {made}, CASE WHEN {is_long_poll} THEN NULL ELSE latency_us END AS measure
  FROM {rows}
  WHERE latency_us IS NOT NULL
),
counted AS (
  SELECT {keys}, measure, count(*) AS n FROM timed GROUP BY {keys}, measure
),
ranked AS ({ranked})
SELECT
  {keys},
  CAST(coalesce(max(measured), 0) AS BIGINT) AS count,
  CAST(sum(CASE WHEN measure IS NULL THEN n ELSE 0 END) AS BIGINT) AS long_polls,
  CAST(coalesce(sum(measure * n), 0) AS BIGINT) AS total,
  min(measure) AS low,
  min(CASE WHEN upto * 100 >= measured * 50 THEN measure END) AS p50,
  min(CASE WHEN upto * 100 >= measured * 90 THEN measure END) AS p90,
  min(CASE WHEN upto * 100 >= measured * 99 THEN measure END) AS p99,
  max(measure) AS high
FROM ranked
GROUP BY {keys}
