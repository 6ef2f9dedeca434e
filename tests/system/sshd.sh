# sshd.sh - OpenSSH's server confines its child for a new connection by chroot and seccomp. A system
# call that the server itself does not make would end the child.
. tests/system/_lib.sh
. tests/system/_server.sh
need ssh ssh-keygen python3 pgrep
sshd=$(PATH=$PATH:/usr/sbin command -v sshd) || skip "sshd is not installed"
[ -x "${LOAM:-}" ] || skip "no loam command in LOAM"
[ "$(id -u)" = 0 ] || skip "sshd separates its privileges only if root starts it"

# Debian's service makes this folder when it starts.
[ -d /run/sshd ] || mkdir -m 755 /run/sshd
ssh-keygen -q -t ed25519 -N '' -f "$work/host"
ssh-keygen -q -t ed25519 -N '' -f "$work/key"
for key in one two; do ssh-keygen -q -t ed25519 -N secret -f "$work/$key"; done
cat "$work"/{key,one,two}.pub > "$work/authorized"
port=$(free_port)
cat > "$work/config" << END
Port $port
ListenAddress 127.0.0.1
HostKey $work/host
PidFile none
AuthorizedKeysFile $work/authorized
StrictModes no
LoginGraceTime 600
KbdInteractiveAuthentication no
UsePAM yes
X11Forwarding yes
PrintMotd no
END

# A client waits in the middle of its login while it asks for the passphrase of a key. It gets a
# wrong passphrase for the key "one", and therefore offers the key "two" to the server.
cat > "$work/ask" << END
#!/bin/sh
case \$1 in *$work/one*) key=one word=wrong ;; *) key=two word=secret ;; esac
touch "$work/asked.\$key"
while [ -d "$work" ] && [ ! -e "$work/go.\$key" ]; do sleep 0.05; done
echo "\$word"
END
chmod +x "$work/ask"
echo "[127.0.0.1]:$port $(cut -d ' ' -f 1-2 "$work/host.pub")" > "$work/known"

# login OPTION... - runs `true` on the server.
login() {
  SSH_ASKPASS=$work/ask SSH_ASKPASS_REQUIRE=force ssh -F none -p "$port" -o IdentitiesOnly=yes \
    -o UserKnownHostsFile="$work/known" -o NumberOfPasswordPrompts=1 \
    -o PreferredAuthentications=publickey "$@" root@127.0.0.1 true < /dev/null
}
is_up() { grep -q "Server listening" "$work/log"; }
sessions_ended() { [ "$(tree "$server" | wc -l)" = 1 ]; }

write "$work/after.lua" after 4096
for way in $ways; do
  rm -f "$work"/asked.* "$work"/go.*
  write "$live" before 64
  rm -f "$work/log" # its old lines would say that the server is up
  (run_as "$way" "$sshd" -D -e -f "$work/config") > "$work/log" 2>&1 &
  server=$!
  children=$server
  await "$way: sshd does not start" is_up
  for _ in 1 2 3; do
    login -i "$work/key" > "$work/login" 2>&1 ||
      fail "$way: no login: $(cat "$work/login" "$work/log")"
  done
  echo "ok: $way: three logins"

  await "$way: a session does not end" sessions_ended
  login -i "$work/one" -i "$work/two" > "$work/login" 2>&1 &
  client=$!
  children="$server $client"
  await "$way: the client asks for no passphrase" test -e "$work/asked.one"
  confined=$(pgrep -f '^sshd: root \[net\]' -P "$(pgrep -P "$server")")
  grep -q '^Seccomp:.*2' "/proc/$confined/status" || fail "$way: $confined is not confined"
  reached "$way" "$server"
  same_figures "$way" "$server"
  if [ "$way" = run ]; then
    "$LOAM" reload "$server" "$work/after.lua" > "$work/reload" 2>&1 || fail "$(cat "$work/reload")"
  fi
  touch "$work/go.one"
  await "$way: the client asks for no passphrase again" test -e "$work/asked.two"
  [ "$way" != run ] || await "the confined child does not obey a reload" obeys "$confined" after
  touch "$work/go.two"
  wait "$client" || fail "$way: the login during an edit: $(cat "$work/login" "$work/log")"
  children=$server
  echo "ok: $way: a login that waits for a passphrase"
  [ "$way" != run ] || echo "ok: $way: the confined child obeys a reload"

  await "$way: a session does not end" sessions_ended
  kill "$server"
  wait "$server"
  children=
done
