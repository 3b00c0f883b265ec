WITH timed AS (
  SELECT {made}, CASE WHEN {is_long_poll} THEN NULL ELSE latency_us END AS took
  FROM {rows}
  WHERE latency_us IS NOT NULL
),
counted AS (
  SELECT {keys}, took, count(*) AS n FROM timed GROUP BY {keys}, took
),
ranked AS (
  SELECT
    {keys}, took, n,
    sum(n) OVER (
      PARTITION BY {keys} ORDER BY took NULLS LAST ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
    ) AS upto,
    sum(CASE WHEN took IS NOT NULL THEN n END) OVER (PARTITION BY {keys}) AS measured
  FROM counted
)
SELECT
  {keys},
  CAST(coalesce(max(measured), 0) AS BIGINT) AS count,
  CAST(sum(CASE WHEN took IS NULL THEN n ELSE 0 END) AS BIGINT) AS long_polls,
  CAST(coalesce(sum(took * n), 0) AS BIGINT) AS total,
  min(took) AS low,
  min(CASE WHEN upto * 100 >= measured * 50 THEN took END) AS p50,
  min(CASE WHEN upto * 100 >= measured * 90 THEN took END) AS p90,
  min(CASE WHEN upto * 100 >= measured * 99 THEN took END) AS p99,
  max(took) AS high
FROM ranked
GROUP BY {keys}
