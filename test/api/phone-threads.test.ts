import { mkdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { expect, it } from 'vitest';
import { createDatabase, SESSIONS, startWriter, WAL } from '../support/agent-database.ts';
import { startWatch } from '../support/cpu.ts';
import { bearer, describeMatrix, pair, post, type Target } from '../support/relay.ts';

async function list(target: Target, token: string) {
  const response = await target.fetch('/phone/threads', { headers: bearer(token) });
  expect(response.status).toBe(200);
  return (await response.json()).threads;
}

describeMatrix('phone threads (contract 04 §5.7)', (start, runtime) => {
  it('lists a chat that appeared in a message', async () => {
    const target = await start();
    const { token } = await pair(target);
    const message = { text: 'Done', chat_id: 't-build', title: 'Build' };
    expect((await target.fetch('/phone/outbound', { ...post(message), headers: bearer(token) })).status).toBe(200);
    expect(await list(target, token)).toEqual([{ session_id: '', chat_id: 't-build', title: 'Build' }]);
  });

  it('puts a message without a chat into the default chat', async () => {
    const target = await start();
    const { token } = await pair(target);
    for (const chat of [null, '', ' ']) await target.operator('/phone/message', post({ text: 'x', chat_id: chat }));
    expect(await list(target, token)).toEqual([{ session_id: '', chat_id: 'phone', title: null }]);
  });

  it('needs a bearer, also on loopback', async () => {
    const target = await start();
    expect((await target.operator('/phone/threads')).status).toBe(401);
    expect((await target.fetch('/phone/threads', post({ chat_id: 'c' }))).status).toBe(401);
    expect((await target.fetch('/phone/threads', { method: 'DELETE' })).status).toBe(405);
  });

  it('stores a chat and lists it', async () => {
    const target = await start();
    const { token } = await pair(target);
    const send = async (body: unknown) => {
      const response = await target.fetch('/phone/threads', {
        ...post(body),
        headers: { ...bearer(token), 'content-type': 'application/json' },
      });
      return { status: response.status, body: await response.json() };
    };
    expect(await list(target, token)).toEqual([]);
    expect(await send({ chat_id: 't-plans', session_id: 's1', title: 'Plans' })).toEqual({
      status: 200,
      body: { ok: true, thread: { session_id: 's1', chat_id: 't-plans', title: 'Plans' } },
    });
    // Without a title the known one stays; null removes it.
    expect((await send({ chat_id: 't-plans' })).body.thread).toMatchObject({ session_id: '', title: 'Plans' });
    expect(await list(target, token)).toEqual([{ session_id: '', chat_id: 't-plans', title: 'Plans' }]);
    expect((await send({ chat_id: 't-plans', title: null })).body.thread.title).toBeNull();
    for (const bad of [
      {},
      { chat_id: '' },
      { chat_id: ' ' },
      { chat_id: 5 },
      { chat_id: null },
      { chat_id: 'x'.repeat(257) },
      { chat_id: 'c', title: 5 },
      { chat_id: 'c', title: {} },
      { chat_id: 'c', session_id: null },
      { chat_id: 'c', session_id: ['s'] },
      [],
    ]) {
      const { status, body } = await send(bad);
      expect([bad, status, typeof body.error]).toEqual([bad, 400, 'string']);
    }
    expect(await list(target, token)).toHaveLength(1);
  });

  if (runtime === 'edge') return;

  it("lists the agent's sessions of every profile, then chats that only the relay knows", async () => {
    const target = await start();
    const { token } = await pair(target);
    const profiles = join(target.agentHome, 'profiles');
    for (const name of ['b', 'a', 'locked', 'corrupt', 'empty', '.hidden'])
      await mkdir(join(profiles, name), { recursive: true });
    const insert = (...rows: string[]) => `INSERT INTO sessions VALUES ${rows.join(',')};`;
    const agent = await startWriter(join(target.agentHome, 'state.db'));
    await agent.run(
      `${WAL} ${SESSIONS} ${insert(
        "('s1', 'phone', 'home', 'Home')",
        "('s2', 'telegram', 'x', 'No')",
        "('s3', 'phone', '', 'No')",
        "('s4', 'phone', NULL, 'No')",
        "('s5', 'phone', 'quiet', NULL)",
      )}`,
    );
    createDatabase(
      join(profiles, 'a/state.db'),
      `${SESSIONS} ${insert("('s6', 'phone', 'a', 'A')", "('s1', 'phone', 'a', 'No')")}`,
    );
    // Older agents store no titles.
    createDatabase(
      join(profiles, 'b/state.db'),
      "CREATE TABLE sessions (id TEXT, source TEXT, chat_id TEXT); INSERT INTO sessions VALUES ('s7', 'phone', 'b');",
    );
    createDatabase(join(profiles, '.hidden/state.db'), `${SESSIONS} ${insert("('s8', 'phone', 'h', 'No')")}`);
    const locked = await startWriter(join(profiles, 'locked/state.db'));
    await locked.run(`${SESSIONS} ${insert("('s9', 'phone', 'l', 'No')")} BEGIN EXCLUSIVE;`);
    await writeFile(join(profiles, 'corrupt/state.db'), 'x'.repeat(5000));
    const now = Date.now();
    target.relay?.threads.seen({ chatId: 'home', title: 'Other', messageId: 'm1', at: now });
    target.relay?.threads.seen({ chatId: null, title: null, messageId: 'm2', at: now });
    target.relay?.threads.seen({ chatId: 't-new', title: 'New', messageId: 'm3', at: now });
    target.relay?.threads.seen({ chatId: 't-new', title: null, messageId: 'm4', at: now });
    const passed = startWatch();
    expect(await list(target, token)).toEqual([
      { session_id: 's1', chat_id: 'home', title: 'Home' },
      { session_id: 's5', chat_id: 'quiet', title: null },
      { session_id: 's6', chat_id: 'a', title: 'A' },
      { session_id: 's7', chat_id: 'b', title: null },
      { session_id: '', chat_id: 'phone', title: null },
      { session_id: '', chat_id: 't-new', title: 'New' },
    ]);
    // Phones wait three seconds.
    expect(passed()).toBeLessThan(3000);
  });
});
