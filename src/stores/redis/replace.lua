-- Puts other fields in the place of a buffer.
-- KEYS: the buffer. ARGV: time to live (ms), then fields and values.
local buffer = KEYS[1]
redis.call('DEL', buffer)
for at = 2, #ARGV, 2 do
  redis.call('HSET', buffer, ARGV[at], ARGV[at + 1])
end
redis.call('PEXPIRE', buffer, ARGV[1])
