# git.sh - the life of a repository: init, commits, log, diff, gc, clone, fsck.
. tests/system/_lib.sh
need git

cat > "$work/life" <<'SCRIPT'
set -e
export HOME=$1 GIT_CONFIG_NOSYSTEM=1 GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@b GIT_COMMITTER_NAME=a
export GIT_COMMITTER_EMAIL=a@b GIT_AUTHOR_DATE='1700000000 +0000' GIT_COMMITTER_DATE='1700000000 +0000'
rm -rf "$1/repo" "$1/clone"
git init -q -b main "$1/repo"
cd "$1/repo"
for i in 1 2 3 4 5 6; do
  for j in $(seq 1 30); do seq "$i" "$((i * j + 200))" > "file$j"; done
  git add .
  git commit -q -m "commit $i"
done
git log --stat --format='%H %s' | tail -n 40
git diff HEAD~3 HEAD | cksum
git blame file7 | cksum
git gc -q --aggressive
git clone -q "$1/repo" "$1/clone" 2>&1
git -C "$1/clone" fsck --full --no-progress
git -C "$1/clone" rev-parse HEAD
git show nosuch 2>&1 || echo "status $?"
SCRIPT
mkdir "$work/home"
compare_runs "git" bash "$work/life" "$work/home"
