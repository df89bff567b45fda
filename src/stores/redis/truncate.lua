-- Ends the buffer at a turn, if its head is the expected one. Whoever still writes under that one is refused from now on.
-- KEYS: the buffer. ARGV: time to live (ms), expected epoch, expected head, last number, new epoch, new head.
local buffer = KEYS[1]
if redis.call('HGET', buffer, 'epoch') ~= ARGV[2] or redis.call('HGET', buffer, 'head') ~= ARGV[3] then
  return 0
end
local last = tonumber(ARGV[4])
for _, field in ipairs(redis.call('HKEYS', buffer)) do
  local number = tonumber(field)
  if number and number > last then
    redis.call('HDEL', buffer, field)
  end
end
redis.call('HSET', buffer, 'epoch', ARGV[5], 'head', ARGV[6])
redis.call('PEXPIRE', buffer, ARGV[1])
return 1
