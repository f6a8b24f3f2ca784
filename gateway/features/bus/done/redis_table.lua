-- KEYS: ids. ARGV: step, owner, milliseconds.
local results = {}
local step, owner, milliseconds = ARGV[1], ARGV[2], ARGV[3]
for i, key in ipairs(KEYS) do
  local holder = redis.call('GET', key)
  local mine = not holder or holder == owner
  results[i] = 0
  if step == 'finish' then
    redis.call('SET', key, '*', 'PX', milliseconds)
  elseif step == 'release' then
    if holder == owner then redis.call('DEL', key) end
  elseif mine then
    redis.call('SET', key, owner, 'PX', milliseconds)
  elseif holder == '*' then
    results[i] = -1
  else
    results[i] = math.max(1, redis.call('PTTL', key))
  end
end
return results
