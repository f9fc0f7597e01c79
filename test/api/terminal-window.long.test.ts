import { existsSync, readFileSync } from 'node:fs';
import { rm } from 'node:fs/promises';
import { join } from 'node:path';
import { expect, test, vi } from 'vitest';
import { cleanups } from '../support/built-relay.ts';
import type { Client } from '../support/client.ts';
import { median, POLL, TIMED, TIMEOUT } from '../support/limits.ts';
import { describeMatrix, describeOnNode, pair } from '../support/relay.ts';
import {
  type Attachment,
  attach,
  hasProgram,
  pairTerminal,
  reconnect,
  startTerminalRelay,
} from '../support/terminal.ts';

const cleanup = cleanups();
const WINDOW = 16_384;
const FLOOD = "sh -c 'echo $$ > pid; exec yes'\r";

async function start(tmux = false) {
  const target = await startTerminalRelay({ tmux });
  cleanup.push(() => target.stop());
  return { target, ...(await pairTerminal(target)) };
}

const acknowledge = (client: Client, chars: unknown) =>
  client.send('terminal', 'terminal.ack', { session_name: 'a', chars });

/** Resolves once the relay has handled everything that was sent before. */
async function handled(client: Client): Promise<void> {
  const id = crypto.randomUUID();
  client.send('terminal', 'terminal.list', {}, id);
  await client.next({ id });
}

const waitFor = (check: () => void, interval = POLL) => vi.waitFor(check, { timeout: TIMEOUT, interval });
const waitForLength = (shell: Attachment, length: number) => waitFor(() => expect(shell.text.length).toBe(length));

/** Acknowledges all output until stopped. */
function render(client: Client, shell: Attachment): () => void {
  const listen = () => acknowledge(client, shell.text.length);
  listen();
  client.socket.on('message', listen);
  return () => void client.socket.off('message', listen);
}

const withTmux = hasProgram('tmux') ? [false, true] : [false];

describeOnNode.each(withTmux)('terminal.attach with a window, tmux: %s (contract 09 §1)', (tmux) => {
  // tmux prints little of a flood: it skips what a slow client would not see.
  const rounds = tmux ? 3 : 9;

  test('output stops at the window, and goes on as it is acknowledged', async () => {
    const { client } = await start(tmux);
    const shell = await attach(client, 'a', { window: WINDOW });
    shell.type(FLOOD);
    for (let length = WINDOW; length <= rounds * WINDOW; length += WINDOW) {
      await waitForLength(shell, length);
      // Ignored: smaller than before, larger than sent, not an integer.
      for (const chars of [length - WINDOW - 1, length + 1, length - 0.5, String(length), null])
        acknowledge(client, chars);
      await handled(client);
      expect(shell.text.length).toBe(length);
      acknowledge(client, length);
    }
  });

  test('Ctrl-C ends a flood within 200 ms, although its output is not acknowledged', TIMED, async () => {
    const { client, target } = await start(tmux);
    const window = tmux ? WINDOW : 262_144;
    const shell = await attach(client, 'a', { window });
    const pidFile = join(target.agentHome, 'pid');
    const times: number[] = [];
    for (let round = 0; round < rounds; round++) {
      const stop = render(client, shell);
      shell.type(`echo e"n"d${round}\r`);
      await shell.has(`end${round}`);
      stop();
      const rendered = shell.text.length;
      acknowledge(client, rendered);
      await rm(pidFile, { force: true });
      shell.type(FLOOD);
      await waitForLength(shell, rendered + window);
      const pid = await vi.waitFor(
        () => {
          expect(readFileSync(pidFile, 'utf8')).toMatch(/^\d+\n$/);
          return readFileSync(pidFile, 'utf8').trim();
        },
        { timeout: TIMEOUT, interval: POLL },
      );
      const began = performance.now();
      shell.type('\x03');
      await waitFor(() => expect(existsSync(`/proc/${pid}`)).toBe(false), 2);
      times.push(performance.now() - began);
      expect(shell.text.length).toBe(rendered + window);
    }
    expect(median(times)).toBeLessThan(200);
  });

  test('after a lost socket the count begins again', async () => {
    const { client, target, token } = await start(tmux);
    const shell = await attach(client, 'a', { window: WINDOW });
    shell.type(FLOOD);
    await waitForLength(shell, WINDOW);
    client.socket.terminate();
    const next = await reconnect(target, token);
    const again = await attach(next, 'a', { window: WINDOW });
    expect(again.facts.reattach).toBe(true);
    await waitForLength(again, WINDOW);
    acknowledge(next, WINDOW);
    await waitForLength(again, 2 * WINDOW);
  });
});

describeOnNode('terminal.attach with a window (contract 09 §1)', () => {
  test('reaches the end of long output exactly', async () => {
    const { client } = await start();
    const shell = await attach(client, 'a', { window: WINDOW });
    const stop = render(client, shell);
    shell.type('seq 1 200000; exit 7\r');
    const { payload } = await client.next({ type: 'terminal.detached' });
    stop();
    expect(payload).toMatchObject({ reason: 'eof', exit_code: 7 });
    const numbers = shell.text.split(/\r\n|\r/).filter((line) => /^\d+$/.test(line));
    expect(numbers).toHaveLength(200_000);
    expect(numbers.every((line, at) => line === String(at + 1))).toBe(true);
  });

  test('is a matter of each attach and of each socket', async () => {
    if (!hasProgram('tmux')) return;
    const { client, target } = await start(true);
    const paced = await attach(client, 'a', { window: WINDOW });
    const { client: other } = await pairTerminal(target);
    const free = await attach(other, 'a');
    paced.type(FLOOD);
    await waitForLength(paced, WINDOW);
    const before = free.text.length;
    await waitFor(() => expect(free.text.length).toBeGreaterThan(before + 4 * WINDOW));
    expect(paced.text.length).toBe(WINDOW);
    // Another attach on the same socket, without a window.
    client.send('terminal', 'terminal.attach', { session_name: 'a' });
    await waitFor(() => expect(paced.text.length).toBeGreaterThan(4 * WINDOW));
  });
});

describeMatrix('a window that cannot be (contract 09 §1)', (startTarget) => {
  test('is refused', async () => {
    const { client } = await pair(await startTarget());
    for (const window of [0, 16_383, 1_048_577, 20_000.5, '32768', true, {}]) {
      const id = crypto.randomUUID();
      client.send('terminal', 'terminal.attach', { session_name: 'a', window }, id);
      expect(await client.next({ id })).toMatchObject({
        type: 'terminal.error',
        payload: {
          message: 'window must be an integer from 16384 to 1048576',
          error: 'invalid_request',
          session_name: 'a',
        },
      });
    }
  });

  test('terminal.ack without a session is ignored', async () => {
    const { client } = await pair(await startTarget());
    client.send('terminal', 'terminal.ack', { session_name: 'a', chars: 5 });
    client.send('terminal', 'terminal.ack', {});
    client.send('system', 'ping', {}, 'p');
    expect((await client.next()).type).toBe('pong');
  });
});
