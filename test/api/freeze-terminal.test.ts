import { expect, test, vi } from 'vitest';
import { RelayError } from '../../lib/errors.ts';
import { systemClock } from '../../lib/kit/clock.ts';
import { createTerminals } from '../../lib/terminal/terminals.ts';
import { cleanups } from '../support/built-relay.ts';
import { createTestHost } from '../support/host.ts';
import { TIMEOUT } from '../support/limits.ts';
import { createTestLog } from '../support/log.ts';
import { bearer, describeOnNode, post } from '../support/relay.ts';
import { attach, exists, hasProgram, pairTerminal, shellsOf, startTerminalRelay } from '../support/terminal.ts';

const cleanup = cleanups();

describeOnNode.each(hasProgram('tmux') ? [false, true] : [false])(
  'shells while frozen, tmux: %s (contract 09 §3)',
  (tmux) => {
    test("those of an agent's run end, also one that it left; the owner's go on, and can be opened", async () => {
      const target = await startTerminalRelay({ tmux });
      cleanup.push(() => target.stop());
      const { client, token } = await pairTerminal(target);
      const own = await attach(client, 'own');
      await own.shows('ready>');
      const ofRun = await attach(client, 'of-run', { runId: 'run-1' });
      await ofRun.shows('ready>');
      const left = await attach(client, 'left', { runId: 'run-1' });
      await left.shows('ready>');
      client.send('terminal', 'terminal.detach', { session_name: 'left' });
      await vi.waitFor(() => expect(left.detached).toBeDefined());

      const begun = await fetch(`${target.url}/relay/freeze`, { ...post({}), headers: bearer(token) });
      expect(begun.status).toBe(200);
      await vi.waitFor(() => expect(ofRun.detached?.payload.reason).toBe('frozen'));
      await vi.waitFor(() => expect(['left', 'of-run'].flatMap(shellsOf)).toEqual([]));
      expect(exists(own.facts.pid)).toBe(true);
      own.type('echo still $((40 + 2))\r');
      await own.shows('still 42');

      client.send('terminal', 'terminal.attach', { session_name: 'next', cols: 80, rows: 24, run_id: 'run-2' }, 'next');
      const refused = await client.next({ channel: 'terminal', id: 'next' });
      expect(refused).toMatchObject({ type: 'terminal.error', payload: { error: 'frozen', session_name: 'next' } });
      for (const run_id of [7, ['run-2'], false]) {
        client.send('terminal', 'terminal.attach', { session_name: 'next', cols: 80, rows: 24, run_id }, 'odd');
        const odd = await client.next({ channel: 'terminal', id: 'odd' });
        expect(odd).toMatchObject({ type: 'terminal.error', payload: { error: 'frozen' } });
      }
      const more = await attach(client, 'more');
      await more.shows('ready>');
    });
  },
);

describeOnNode('shells of the process before (contract 09 §3)', () => {
  test.skipIf(!hasProgram('tmux'))(
    "those of an agent's run end when the relay starts frozen; the owner's go on",
    async () => {
      const target = await startTerminalRelay({ tmux: true });
      cleanup.push(() => target.stop());
      const { client } = await pairTerminal(target);
      const own = await attach(client, 'own-before');
      await own.shows('ready>');
      await attach(client, 'own-before', { runId: 'run-1' });
      const ofRun = await attach(client, 'run-before', { runId: 'run-1' });
      await ofRun.shows('ready>');

      const { agentHome } = target;
      const env = { PATH: process.env.PATH ?? '', HOME: agentHome, SHELL: '/bin/bash', TMUX_TMPDIR: agentHome };
      const next = createTerminals({
        host: createTestHost({ agentHome, env }),
        config: { terminalShell: undefined, terminalTmux: true, terminalGraceSeconds: 0 },
        sessions: target.relay.sessions,
        gate: {
          requireThawed() {
            throw new RelayError('locked', 'frozen by operator');
          },
          onChange: () => () => {},
        },
        clock: systemClock,
        log: createTestLog(),
      });
      cleanup.push(() => next.stop());
      await vi.waitFor(() => expect(shellsOf('run-before')).toEqual([]), { timeout: TIMEOUT });
      expect(shellsOf('own-before')).not.toEqual([]);
    },
  );
});
