SELECT
  {keys},
  count(request_size) AS requests,
  CAST(coalesce(sum(request_size), 0) AS BIGINT) AS request_bytes,
  CAST(coalesce(sum(response_size), 0) AS BIGINT) AS response_bytes,
  CAST(coalesce(sum(request_size), 0) + coalesce(sum(response_size), 0) AS BIGINT) AS bytes,
  CAST(coalesce(sum(record_count), 0) AS BIGINT) AS records,
  count(CASE WHEN error_count > 0 THEN 1 END) AS with_errors,
  min(time_ns) AS first_ns,
  max(time_ns) AS last_ns
FROM (
  SELECT {made}, time_ns, request_size, response_size, record_count, error_count FROM {exchanges}
) AS talks
GROUP BY {keys}
