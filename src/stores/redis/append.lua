-- Appends a turn if the buffer's head is the expected one, and drops what is no longer kept.
-- KEYS: the buffer. ARGV: time to live (ms), expected epoch, expected head, new head, number, turn, keep from.
local buffer = KEYS[1]
if redis.call('HGET', buffer, 'epoch') ~= ARGV[2] or redis.call('HGET', buffer, 'head') ~= ARGV[3] then
  return 0
end
redis.call('HSET', buffer, 'head', ARGV[4], ARGV[5], ARGV[6])
local keep_from = tonumber(ARGV[7])
for _, field in ipairs(redis.call('HKEYS', buffer)) do
  local number = tonumber(field)
  if number and number < keep_from then
    redis.call('HDEL', buffer, field)
  end
end
redis.call('PEXPIRE', buffer, ARGV[1])
return 1
