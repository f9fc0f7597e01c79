import { execFileSync } from 'node:child_process';
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { bearer, describeOnNode, post } from '../support/relay.ts';
import { temporaryDirectory } from '../support/temp.ts';
import { attach, pairTerminal } from '../support/terminal.ts';
import { ask, start, withTmux } from '../support/terminal-flow.ts';

/** A relay whose tmux first runs lines of sh. `$real` is the tmux of this machine. */
async function startScripted(script: string) {
  const programs = await temporaryDirectory();
  const real = execFileSync('which', ['tmux'], { encoding: 'utf8' }).trim();
  const become = (script: string) =>
    writeFile(join(programs, 'tmux'), `#!/bin/sh\nreal=${real}\n${script}\nexec $real "$@"\n`, { mode: 0o755 });
  await become(script);
  return { ...(await start({ tmux: true, programs })), become, programs };
}

const testTmux = test.skipIf(!withTmux.includes(true));

describeOnNode('a tmux server that ends (contract 02 §3.5, 3.7)', () => {
  testTmux('a kill of the only other shell does not end a shell whose client is still starting', async () => {
    // As the real one: a client that is connecting while the server ends does not start another server.
    const { client } = await startScripted(`case "$*" in *"new-session -A -s svc-b "*)
      sleep 0.3
      if ! $real "$1" "$2" has-session -t =svc-a 2>/dev/null; then
        echo "server exited unexpectedly"
        exit 1
      fi
    esac`);
    await (await attach(client, 'a')).shows('ready>');
    const shell = await attach(client, 'b');
    expect((await ask(client, 'kill', { session_name: 'a' })).type).toBe('terminal.detached');
    await shell.shows('ready>');
    expect((await ask(client, 'list')).payload.sessions).toMatchObject([{ name: 'b', live: true, attached: 1 }]);
    expect(shell.detached).toBeUndefined();
  });

  testTmux(
    '§3.8: a list asks a server once more that ends meanwhile, and a tmux that fails is in the log',
    async () => {
      const { client, target, programs, become } = await startScripted('');
      await (await attach(client, 'a')).shows('ready>');
      await ask(client, 'detach', { session_name: 'a' });
      const names = async () => {
        const { sessions } = (await ask(client, 'list')).payload;
        return (sessions as { name: string }[]).map(({ name }) => name);
      };
      const failing = (times: string) => `case "$*" in *list-sessions*)
      if ${times}; then
        echo "server exited unexpectedly" >&2
        exit 1
      fi
    esac`;
      await become(failing(`mkdir "${programs}/asked" 2>/dev/null`));
      expect(await names()).toEqual(['a']);
      const warnings = () => target.log.filter((line) => line.includes('shells in tmux cannot be listed'));
      expect(warnings()).toEqual([]);
      await become(failing('true'));
      expect(await names()).toEqual([]);
      expect(warnings()).toEqual([expect.stringContaining('server exited unexpectedly')]);
      // Nothing is forgotten.
      await become('');
      expect(await names()).toEqual(['a']);
    },
  );

  testTmux("09 §3: a shell of the owner does not become an agent run's while tmux fails", async () => {
    const { client, target, become } = await startScripted('');
    const own = await attach(client, 'own');
    await own.shows('ready>');
    await become('case "$*" in *has-session*) exit 1; esac');
    const agent = await pairTerminal(target);
    const attachForRun = () => ask(agent.client, 'attach', { session_name: 'own', run_id: 'run-1' });
    expect(await attachForRun()).toMatchObject({
      type: 'terminal.error',
      payload: { message: 'Failed to start a terminal session', session_name: 'own' },
    });
    await become('');
    expect(await attachForRun()).toMatchObject({ type: 'terminal.attached', payload: { reattach: true } });
    const frozen = await fetch(`${target.url}/relay/freeze`, { ...post({}), headers: bearer(agent.token) });
    expect(frozen.status).toBe(200);
    await agent.client.next({ type: 'terminal.detached' });
    expect((await ask(client, 'list')).payload.sessions).toMatchObject([{ name: 'own', attached: 1 }]);
    own.type('echo still $((40 + 2))\r');
    await own.shows('still 42');
    expect(target.tmuxRun('show-options', '-t', 'svc-own', '-qv', '@svc-run')).toBe('');
  });
});
