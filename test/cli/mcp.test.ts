import { readFileSync, statSync, writeFileSync } from 'node:fs';
import { mkdir, rm, symlink } from 'node:fs/promises';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import { beforeEach, describe, expect, it } from 'vitest';
import { PROGRAMS } from '../../cli/mcp/programs.ts';
import { RelayError } from '../../lib/errors.ts';
import { type BuiltTarget, cleanups, startBuiltTarget } from '../support/built-relay.ts';
import { agentHome } from '../support/cli.ts';
import { begin, run } from '../support/companion-cli.ts';
import { initialize } from '../support/mcp.ts';
import { pair } from '../support/relay.ts';

const pending = cleanups();
let relay: BuiltTarget;
let home: string;
beforeEach(async () => {
  relay = await startBuiltTarget();
  pending.push(() => relay.stop());
  home = agentHome();
});

const setting = (more = {}) => ({ home, env: { RELAY_PORT: String(relay.port), HOME: home }, ...more });
const svc = (words: string[], input = '') => run(words, setting({ input }));
const stored = () => JSON.parse(readFileSync(join(home, 'svc-relay/mcp.json'), 'utf8'));

/** A phone that answers every question with what `answer` returns. */
async function startOwner(answer: (text: string) => Record<string, unknown> | undefined) {
  const phone = await pair(relay, { device: { device_name: 'Pixel 9' } });
  const texts: string[] = [];
  phone.client.socket.on('message', (data) => {
    const { type, payload } = JSON.parse(String(data));
    if (type !== 'phone.message') return;
    texts.push(payload.text);
    const reply = answer(payload.text);
    if (reply) phone.client.send('proactive', 'proactive.reply', { reply_to: payload.message_id, ...reply });
  });
  phone.client.send('proactive', 'proactive.subscribe', {});
  await phone.client.next({ type: 'proactive.subscribed' });
  return { texts };
}

describe('svc mcp (contract 09 §7)', () => {
  it('pair makes a session of few grants and keeps its token in a private file; again it asks; list, revoke', async () => {
    const none = await svc(['mcp', 'list']);
    expect(none.stdout).toMatch(/No agent.*svc mcp pair/);
    const paired = await svc(['mcp', 'pair', '--only', 'phone,bridge']);
    expect(paired).toMatchObject({ code: 0, stderr: '' });
    const [{ token }] = stored().pairings;
    expect(paired.stdout).toContain(token.slice(0, 8));
    expect(paired.stdout).not.toContain(token);
    expect(statSync(join(home, 'svc-relay/mcp.json')).mode & 0o777).toBe(0o600);
    const [session] = relay.relay.sessions.list();
    expect(Object.keys(session?.grants ?? {}).sort()).toEqual(['bridge', 'phone']);
    const again = await svc(['mcp', 'pair']);
    expect([again.code, again.stderr]).toEqual([2, expect.stringMatching(/--yes/)]);
    expect((await svc(['mcp', 'pair', '--yes', '--json'])).code).toBe(0);
    expect(stored().pairings).toHaveLength(1);
    expect(relay.relay.sessions.list().map(({ prefix }) => prefix)).toEqual([stored().pairings[0].token.slice(0, 8)]);
    await svc(['mcp', 'pair', '--name', 'codex', '--only', 'phone']);
    const { pairings } = JSON.parse((await svc(['mcp', 'list', '--json'])).stdout);
    expect(pairings).toMatchObject([
      { name: 'mcp', state: 'works' },
      { name: 'codex', state: 'works' },
    ]);
    // Such as while the clock of the relay may be wrong (contract 11 §2).
    const { sessionOf } = relay.relay.sessionBearers;
    relay.relay.sessionBearers.sessionOf = () => {
      throw new RelayError('unavailable', 'try again later');
    };
    expect((await svc(['mcp', 'list'])).stdout).toMatch(/^mcp .* refused for now .*\ncodex .* refused for now /);
    relay.relay.sessionBearers.sessionOf = sessionOf;
    expect((await svc(['mcp', 'revoke', 'codex', '--yes'])).stdout).toBe("Revoked 'codex'.\n");
    expect(relay.relay.sessions.list()).toHaveLength(1);
    const missing = await svc(['mcp', 'revoke', 'codex', '--yes']);
    expect([missing.code, missing.stderr]).toEqual([1, expect.stringMatching(/svc mcp pair --name codex\n$/)]);
  });

  it('keeps a session that another pair made while this one asked', async () => {
    await svc(['mcp', 'pair']);
    const again = begin(['mcp', 'pair'], setting({ tty: true }));
    await again.prints(/Replace its session\?[\s\S]*\[y\/N\]/);
    expect((await svc(['mcp', 'pair', '--name', 'codex'])).code).toBe(0);
    again.type('y\n');
    expect((await again.ended).code).toBe(0);
    expect(
      stored()
        .pairings.map(({ name }: { name: string }) => name)
        .sort(),
    ).toEqual(['codex', 'mcp']);
  });

  it('keeps the sessions of two commands that pair at the same time', async () => {
    const names = ['claude', 'codex', 'cursor'];
    const paired = await Promise.all(names.map((name) => svc(['mcp', 'pair', '--name', name])));
    expect(paired.map(({ code }) => code)).toEqual([0, 0, 0]);
    expect(
      stored()
        .pairings.map(({ name }: { name: string }) => name)
        .sort(),
    ).toEqual(names);
  });

  it('pair ends the new session if its token cannot be stored, and keeps the old one', async () => {
    await svc(['mcp', 'pair']);
    const [{ token }] = stored().pairings;
    // A folder in place of the lock keeps everybody from changing the file.
    const lock = join(home, 'svc-relay/mcp.json.lock');
    await rm(lock);
    await mkdir(lock);
    const again = await svc(['mcp', 'pair', '--yes']);
    expect([again.code, again.stderr]).toEqual([1, expect.stringMatching(/^error: .*\n$/)]);
    expect(stored().pairings).toMatchObject([{ token }]);
    expect(relay.relay.sessions.list().map(({ prefix }) => prefix)).toEqual([token.slice(0, 8)]);
  });

  it('revoke keeps a session that pair made under the same name while it asked', async () => {
    await svc(['mcp', 'pair']);
    const revoke = begin(['mcp', 'revoke'], setting({ tty: true }));
    await revoke.prints(/\[y\/N\]/);
    expect((await svc(['mcp', 'pair', '--yes'])).code).toBe(0);
    const [{ token }] = stored().pairings;
    revoke.type('y\n');
    expect((await revoke.ended).code).toBe(0);
    expect(stored().pairings).toMatchObject([{ token }]);
    expect(relay.relay.sessions.list().map(({ prefix }) => prefix)).toEqual([token.slice(0, 8)]);
  });

  it('takes a status that HTTP does not have for a failure, rather than end with a stack', async () => {
    await svc(['mcp', 'pair']);
    const other = createServer((_, response) => void response.writeHead(999).end());
    await new Promise<void>((resolve) => other.listen(0, '127.0.0.1', resolve));
    pending.push(async () => void other.close());
    const url = `http://127.0.0.1:${(other.address() as AddressInfo).port}`;
    const file = { version: 1, pairings: [{ name: 'mcp', token: 'x'.repeat(43), url, created_at: 1 }] };
    writeFileSync(join(home, 'svc-relay/mcp.json'), JSON.stringify(file));
    expect((await svc(['mcp', 'list'])).stdout).toMatch(/^mcp .* unreachable /);
  });

  it('alone, carries MCP between stdin and the relay, with questions and cancellation', async () => {
    await svc(['mcp', 'pair', '--only', 'phone']);
    const owner = await startOwner((text) => (text === 'Deploy?' ? { text: 'yes', answer_index: 0 } : undefined));
    const pipe = begin(['mcp'], setting());
    const send = (message: unknown) => pipe.type(`${JSON.stringify(message)}\n`);
    send(initialize());
    expect((await pipe.prints(/"protocolVersion":"([^"]+)"/))[1]).toBe('2025-11-25');
    send({ jsonrpc: '2.0', method: 'notifications/initialized' });
    send({ jsonrpc: '2.0', id: 2, method: 'tools/list' });
    await pipe.prints(/"id":2/);
    expect(pipe.stdout).toContain('phone_approve');
    expect(pipe.stdout).not.toContain('android_tap');
    const ask = (id: number, text: string) =>
      send({
        jsonrpc: '2.0',
        id,
        method: 'tools/call',
        params: { name: 'phone_ask', arguments: { text, answers: ['yes', 'no'] } },
      });
    ask(3, 'Deploy?');
    await pipe.prints(/\\"answer\\":\\"yes\\"/);
    ask(4, 'Wait?');
    await expect.poll(() => owner.texts).toContain('Wait?');
    send({ jsonrpc: '2.0', method: 'notifications/cancelled', params: { requestId: 4 } });
    await expect
      .poll(() => relay.relay.phone.history({ since: 0, limit: 99 }).items.at(-1))
      .toMatchObject({
        state: 'cancelled',
      });
    pipe.stop();
    expect(await pipe.ended).toMatchObject({ code: 0, stderr: '' });
    expect(relay.relay.mcp.count()).toBe(0);
    for (const text of pipe.stdout.trim().split('\n')) expect(JSON.parse(text).jsonrpc).toBe('2.0');
  });

  it('alone, tells the program what is wrong and what to do', async () => {
    const unpaired = await svc(['mcp']);
    expect([unpaired.code, unpaired.stdout]).toEqual([1, '']);
    expect(unpaired.stderr).toMatch(/svc mcp pair\n$/);
    await svc(['mcp', 'pair']);

    const revoked = await svc(['mcp', 'revoke', '--yes']);
    expect(revoked.code).toBe(0);
    await mkdir(join(home, 'svc-relay'), { recursive: true });
    const file = { version: 1, pairings: [{ name: 'mcp', token: 'x'.repeat(43), created_at: 1 }] };
    writeFileSync(join(home, 'svc-relay/mcp.json'), JSON.stringify(file));
    const { stdout } = await svc(['mcp'], `${JSON.stringify(initialize())}\n`);
    expect(JSON.parse(stdout).error.message).toMatch(/svc mcp pair$/);
    const down = await run(['mcp'], { home, env: { RELAY_PORT: '1' }, input: `${JSON.stringify(initialize())}\n` });
    expect(JSON.parse(down.stdout).error.message).toMatch(/svc relay start$/);
  });

  it('install prints the lines of each program, and adds them without losing others', async () => {
    for (const name of Object.keys(PROGRAMS)) {
      const { code, stdout } = await svc(['mcp', 'install', name]);
      expect(code, name).toBe(0);
      expect(stdout, name).toMatch(/svc-relay/);
    }
    await mkdir(join(home, '.cursor'), { recursive: true });
    writeFileSync(join(home, '.cursor/mcp.json'), '{"mcpServers":{"other":{"command":"x"}},"a":1}');
    expect((await svc(['mcp', 'install', 'cursor', '--write'])).code).toBe(0);
    const config = JSON.parse(readFileSync(join(home, '.cursor/mcp.json'), 'utf8'));
    expect(config).toEqual({
      a: 1,
      mcpServers: { other: { command: 'x' }, 'svc-relay': { command: 'svc', args: ['mcp'] } },
    });
    expect((await svc(['mcp', 'install', 'cursor', '--write'])).stdout).toMatch(/has it already/);
    await svc(['mcp', 'install', 'codex', '--write']);
    const toml = readFileSync(join(home, '.codex/config.toml'), 'utf8');
    expect(toml).toContain('[mcp_servers.svc-relay]\ncommand = "svc"\nargs = ["mcp"]');
    await svc(['mcp', 'install', 'codex', '--write']);
    expect(readFileSync(join(home, '.codex/config.toml'), 'utf8')).toBe(toml);
    const other = `model = "x"\n\n[mcp_servers.svc-relay]\nargs = [\n  "mcp",\n]\nenabled = true\n\n[tui]\na = 1\n`;
    const pipe = { command: 'svc', args: ['mcp', '--name', 'work'] };
    const edited = PROGRAMS.codex?.merge(other, pipe) ?? '';
    expect(edited).toBe(
      'model = "x"\n\n[mcp_servers.svc-relay]\ncommand = "svc"\nargs = ["mcp", "--name", "work"]\nenabled = true\n\n[tui]\na = 1\n',
    );
    expect(PROGRAMS.codex?.merge(edited, pipe)).toBe(edited);
    expect(PROGRAMS.codex?.merge('[mcp_servers.svc-relay]', pipe)).toMatch(/^\[mcp_servers\.svc-relay\]\ncommand = /);
    expect(readFileSync(join(home, '.codex/skills/reach-owner/SKILL.md'), 'utf8')).toMatch(/^---\nname: reach-owner\n/);
    // A link to a file that others may read stays both.
    const linked = join(home, 'dotfiles.json');
    writeFileSync(linked, '{"a":1}', { mode: 0o644 });
    await rm(join(home, '.cursor/mcp.json'));
    await symlink(linked, join(home, '.cursor/mcp.json'));
    expect((await svc(['mcp', 'install', 'cursor', '--write'])).code).toBe(0);
    expect(JSON.parse(readFileSync(linked, 'utf8'))).toMatchObject({ a: 1, mcpServers: { 'svc-relay': {} } });
    expect(statSync(linked).mode & 0o777).toBe(0o644);

    writeFileSync(join(home, '.cursor/mcp.json'), '{ // comment\n}');
    const refused = await svc(['mcp', 'install', 'cursor', '--write']);
    expect([refused.code, refused.stderr]).toEqual([1, expect.stringMatching(/svc mcp install cursor\n$/)]);
    expect((await svc(['mcp', 'install', 'emacs'])).code).toBe(2);
    expect((await svc(['mcp', 'list', '--write'])).code).toBe(2);
  });
});

describe('svc phone approve (contract 09 §7)', () => {
  const hook = (event: string) =>
    JSON.stringify({ hook_event_name: event, tool_name: 'Bash', tool_input: { command: 'ls' }, session_id: 's' });
  const approve = async (event: string, ...words: string[]) => {
    const { code, stdout } = await svc(['phone', 'approve', ...words], hook(event));
    expect(code).toBe(0);
    return JSON.parse(stdout).hookSpecificOutput;
  };

  it('answers the hooks of Claude Code and Codex from the phone, and denies where that fails', async () => {
    expect(await approve('PermissionRequest')).toMatchObject({
      decision: { behavior: 'deny', message: expect.stringMatching(/svc mcp pair/) },
    });
    await svc(['mcp', 'pair', '--only', 'phone']);
    let reply: Record<string, unknown> = { text: 'Allow', answer_index: 0 };
    const owner = await startOwner(() => reply);
    expect(await approve('PermissionRequest')).toEqual({
      hookEventName: 'PermissionRequest',
      decision: { behavior: 'allow', updatedInput: { command: 'ls' } },
    });
    expect(owner.texts[0]).toContain('command: ls');
    expect(await approve('PermissionRequest', '--for', 'codex')).toEqual({
      hookEventName: 'PermissionRequest',
      decision: { behavior: 'allow' },
    });
    expect(await approve('PreToolUse')).toMatchObject({ permissionDecision: 'allow' });
    reply = { text: 'Deny and stop', answer_index: 2 };
    expect(await approve('PermissionRequest')).toMatchObject({ decision: { behavior: 'deny', interrupt: true } });
    expect((await approve('PermissionRequest', '--for', 'codex')).decision).toEqual({
      behavior: 'deny',
      message: 'the owner denied this on Pixel 9, and wants you to stop',
    });
    reply = { text: 'use ls -l' };
    expect(await approve('PreToolUse')).toMatchObject({
      permissionDecision: 'deny',
      permissionDecisionReason: 'use ls -l',
    });
    expect((await svc(['phone', 'approve'], '{"hook_event_name":"Stop"}')).code).toBe(2);
    expect((await svc(['phone', 'approve', '--for', 'codex'], hook('PreToolUse'))).code).toBe(2);
  });
});
