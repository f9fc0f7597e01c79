import { existsSync, mkdirSync, readFileSync, rmdirSync, writeFileSync } from 'node:fs';
import { basename, dirname, join } from 'node:path';
import { onTestFinished, vi } from 'vitest';
import { lockHolder } from '../../lib/host/node/relay-lock.ts';
import { unitText } from '../../lib/operator/service/unit.ts';
import { freePort, runSvc, temporaryHome } from './process.ts';

export const RELAY_PROGRAM = new URL('../../dist/cli/svc-relay.js', import.meta.url).pathname;
export const stateOf = (home: string) => join(home, 'svc-relay/state.db');

/** A home whose background relay ends with the test. */
export async function homeWithRelay() {
  const home = await temporaryHome();
  onTestFinished(() => {
    const pid = lockHolder(stateOf(home));
    if (pid !== undefined) process.kill(pid, 'SIGKILL');
  });
  const port = await freePort();
  const svc = (words: string[], env: Record<string, string> = {}) =>
    // No systemd of this machine has a say.
    runSvc(words, { home, env: { PATH: dirname(process.execPath), RELAY_HOST: '127.0.0.1', ...env } });
  return { home, port, svc };
}

/** A hierarchy of control groups in which a test can make some, as systemd does for its units. */
const GROUPS = '/sys/fs/cgroup/freezer';

/** Whether this user can put a process into a control group of a unit, by which commands tell a service. */
export const canGroup = (() => {
  const probe = join(GROUPS, `svc-probe-${process.pid}`);
  try {
    mkdirSync(probe);
    rmdirSync(probe);
    return existsSync(join(GROUPS, 'cgroup.procs'));
  } catch {
    return false;
  }
})();

/**
 * A user's systemd: `systemctl` that starts and stops the program of the unit file. `refuses` holds the verb, such as
 * `stop`, at which it fails. With `grouped`, the program runs in a control group of the unit.
 */
export async function withSystemd({ grouped = false } = {}) {
  const { home, port } = await homeWithRelay();
  const bin = join(home, 'bin');
  const unit = join(home, '.config/systemd/user/svc-relay.service');
  for (const folder of [bin, dirname(unit)]) mkdirSync(folder, { recursive: true });
  writeFileSync(join(home, '.env'), `RELAY_PORT=${port}\nRELAY_HOST=127.0.0.1\n`);
  writeFileSync(
    unit,
    unitText({ node: process.execPath, script: RELAY_PROGRAM, agentHome: home, path: process.env.PATH }),
  );
  const group = join(GROUPS, basename(home), 'svc-relay.service');
  if (grouped) {
    mkdirSync(group, { recursive: true });
    onTestFinished(async () => {
      for (const pid of readFileSync(join(group, 'cgroup.procs'), 'utf8').split('\n').filter(Boolean))
        process.kill(Number(pid), 'SIGKILL');
      // It is busy until its processes are reaped.
      await vi.waitFor(() => rmdirSync(group), { interval: 20 });
      rmdirSync(dirname(group));
    });
  }
  const enter = grouped ? `echo $BASHPID > '${group}/cgroup.procs'; ` : '';
  const script = `#!/bin/bash
echo "$*" >> '${home}/asked'
[ "$2" = "$(cat '${home}/refuses' 2>/dev/null)" ] && exit 1
pid=$(cat '${home}/unit.pid' 2>/dev/null)
# Not a zombie that PID 1 has yet to reap, unless it has more threads than one.
alive() {
  [ -n "$pid" ] && stat=$(cat "/proc/$pid/stat" 2>/dev/null) || return 1
  set -- \${stat##*) }
  [ "$1" != Z ] || [ "\${18}" -gt 1 ]
}
stop() { alive && kill "$pid"; while alive; do sleep 0.05; done; }
start() { alive || { ( ${enter}SVC_HOME='${home}' HOME='${home}' exec setsid '${process.execPath}' '${RELAY_PROGRAM}' start </dev/null >/dev/null 2>&1 ) & echo $! > '${home}/unit.pid'; }; }
case "$2" in
  show) alive && state=active || state=inactive
    printf 'UnitFileState=enabled\\nActiveState=%s\\nExecMainStatus=0\\nExecMainExitTimestampMonotonic=0\\n' "$state";;
  start) start;;
  stop) stop;;
  disable) [ "$3" = --now ] && stop;;
  restart) stop; start;;
esac
exit 0
`;
  writeFileSync(join(bin, 'systemctl'), script, { mode: 0o755 });
  const svc = (words: string[]) => runSvc(words, { home, env: { PATH: `${bin}:${process.env.PATH}` } });
  return {
    home,
    port,
    unit,
    svc,
    refuses: (verb: string) => writeFileSync(join(home, 'refuses'), verb),
    asked: () => (existsSync(join(home, 'asked')) ? readFileSync(join(home, 'asked'), 'utf8') : ''),
  };
}
