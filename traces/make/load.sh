# Starts a server without a file of its own, loads it in three ways, has it save a copy (it forks for that) while it is written to, and ends it.
redis-server --port 7999 --save '' --appendonly no --dir "$PWD" --daemonize no >server.log 2>&1 &
server=$!
until redis-cli -p 7999 ping 2>/dev/null | grep -q PONG; do sleep 0.05; done
redis-cli -p 7999 debug set-active-expire 0 >/dev/null
awk 'BEGIN { s = 7; for (i = 0; i < 250000; i++) { s = (s * 69069 + 12345) % 2147483648; r = int(s / 256); printf "SET k:%d %0*d\r\n", r % 400000, 20 + r % 300, i } }' | redis-cli -p 7999 --pipe >/dev/null
redis-cli -p 7999 bgsave >/dev/null
awk 'BEGIN { s = 9; for (i = 0; i < 80000; i++) { s = (s * 69069 + 12345) % 2147483648; r = int(s / 256); printf "HSET h:%d f%d %d\r\nSET k:%d %0*d\r\n", r % 900, r % 60, i, r % 400000, 10 + r % 500, i } }' | redis-cli -p 7999 --pipe >/dev/null
awk 'BEGIN { for (i = 0; i < 400000; i += 2) printf "DEL k:%d\r\n", i }' | redis-cli -p 7999 --pipe >/dev/null
redis-cli -p 7999 shutdown nosave
wait $server
