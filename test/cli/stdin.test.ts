import { EventEmitter } from 'node:events';
import { describe, expect, it } from 'vitest';
import { type KeyDeps, readKeys } from '../../cli/companion/keys.ts';
import { createLinePrompt } from '../../cli/companion/prompt.ts';
import { readScript, type ScriptDeps } from '../../cli/companion/script.ts';
import type { CommandContext } from '../../cli/output.ts';
import { readPassphrase } from '../../cli/passphrase.ts';
import { createTestHost } from '../support/host.ts';

/** The two halves of a chunk that ends inside of the last character before `end`. */
function cut(text: string, end: string): [Buffer, Buffer] {
  const bytes = Buffer.from(text + end);
  const at = Buffer.byteLength(text) - 1;
  return [bytes.subarray(0, at), bytes.subarray(at)];
}

function createInput() {
  const input = new EventEmitter();
  return Object.assign(input, { resume() {}, pause() {}, send: (chunk: Buffer) => void input.emit('data', chunk) });
}

describe('a character that arrives in two chunks of stdin stays whole', () => {
  it('in a line of a script', () => {
    const input = createInput();
    const posted: unknown[] = [];
    const deps = { input, post: (notification: unknown) => posted.push(notification), notice() {} };
    const stop = readScript(deps as unknown as ScriptDeps);
    const line = '{"notification":{"package_name":"org.example.app","text":"Tea 🫖';
    for (const chunk of cut(line, '"}}\n')) input.send(chunk);
    expect(posted).toEqual([{ packageName: 'org.example.app', title: null, text: 'Tea 🫖' }]);
    stop();
  });

  it('in a line that is typed', () => {
    const input = createInput();
    const sent: string[] = [];
    const prompt = createLinePrompt(() => {});
    prompt.open({ label: 'Reply', onText: (text) => sent.push(text) });
    const questions = { open: () => [] };
    const messages = { question: () => undefined };
    const stop = readKeys({ input, prompt, questions, messages, view: { control() {} } } as unknown as KeyDeps);
    for (const chunk of cut('Tea 🫖', '\r')) input.send(chunk);
    expect(sent).toEqual(['Tea 🫖']);
    stop();
  });

  it('in a passphrase', async () => {
    const stdin = Object.assign(createInput(), { isTTY: true });
    const stderr = { isTTY: true, write() {} };
    const host = createTestHost({ agentHome: '/unused' });
    const typed = readPassphrase({}, { stdin, stderr } as unknown as CommandContext, { host, isNew: false });
    for (const chunk of cut('tea in a pot 🫖', '\r')) stdin.send(chunk);
    expect(await typed).toBe('tea in a pot 🫖');
  });
});
