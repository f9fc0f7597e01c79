import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { expect, it } from 'vitest';
import { CONVERSATIONS, createDatabase, FULL_TEXT, messagesSql, sessionsSql } from '../support/agent-database.ts';
import { setUp } from '../support/chat.ts';
import { again, follow, keep, nextEvent } from '../support/chat-turns.ts';
import { bearer, describeMatrix, pair, type Target } from '../support/relay.ts';

const ROUTES = ['/chat/history?session_id=s1', '/chat/search?q=word'];

async function ask(target: Target, token: string, path: string) {
  const response = await target.fetch(path, { headers: bearer(token) });
  return { status: response.status, body: await response.json() };
}

describeMatrix('GET /chat/history and /chat/search (contract 10 §2)', (start, runtime) => {
  it('check bearer, grant and query before anything else', async () => {
    const target = await start();
    const { token } = await pair(target);
    for (const route of ROUTES) {
      expect((await target.fetch(route)).status).toBe(401);
      expect((await target.fetch(route, { method: 'POST' })).status).toBe(405);
      for (const limit of ['0', '201', '-1', '1.5', 'x', '1e2']) {
        expect([limit, (await ask(target, token, `${route}&limit=${limit}`)).status]).toEqual([limit, 400]);
      }
    }
    for (const id of ['', '%20', '..', 'x'.repeat(257), 'a%00b', 'a%0Ab']) {
      expect(await ask(target, token, `/chat/history?session_id=${id}`)).toMatchObject({
        status: 400,
        body: { error: 'invalid_session_id' },
      });
    }
    for (const q of ['', 'a', '%20a%20', '%20%20', 'x'.repeat(201), 'a%00b']) {
      expect([q, (await ask(target, token, `/chat/search?q=${q}`)).status]).toEqual([q, 400]);
    }
    expect((await ask(target, token, '/chat/search')).status).toBe(400);
  });

  it('without a database of the agent, an unknown session is 404, and nothing is found', async () => {
    const target = await start();
    const { token } = await pair(target);
    expect(await ask(target, token, '/chat/history?session_id=s1')).toEqual({
      status: 404,
      body: { ok: false, error: 'unknown session' },
    });
    expect(await ask(target, token, `/chat/search?q=${encodeURIComponent('"x* OR %')}`)).toEqual({
      status: 200,
      body: { hits: [] },
    });
  });

  it("without a database of the agent, both know the family's own turns", async () => {
    const { api, target, device, client } = await setUp(start);
    api.onStream(async (exchange) => {
      exchange.open();
      await exchange.event({ type: 'assistant.delta', delta: 'The plan is good' });
      await exchange.event({ type: 'run.completed' });
      exchange.end();
    });
    keep(client, 'c1', { client_turn_id: 'mine', message: 'Which plan?' });
    await nextEvent(client, 'c1');
    expect(await nextEvent(client, 'c1')).toMatchObject({ event: 'run.completed' });
    const [turn] = await follow(client);
    const { turn_id: id, started_at: asked, ended_at: ended } = turn ?? {};
    const items = [
      { id: `${id}:user`, role: 'user', text: 'Which plan?', ts: asked },
      { id: `${id}:assistant`, role: 'assistant', text: 'The plan is good', ts: ended },
    ];
    expect(await ask(target, device.token, '/chat/history?session_id=s9')).toEqual({
      status: 200,
      body: { items, has_more: false, source: 'relay' },
    });
    expect((await ask(target, device.token, '/chat/search?q=PLAN%20good')).body).toEqual({
      hits: [{ session_id: 's9', title: null, id: `${id}:assistant`, ts: ended, excerpt: 'The plan is good' }],
    });
    const other = await pair(target);
    expect((await ask(target, other.token, '/chat/history?session_id=s9')).status).toBe(404);
    expect((await ask(target, other.token, '/chat/search?q=plan')).body).toEqual({ hits: [] });
  });

  if (runtime === 'edge') return;

  it('an interrupted turn is completed by what the agent has stored, not by an older answer', async () => {
    const { api, target, device, client } = await setUp(start);
    api.onStream(async (exchange) => {
      exchange.open();
      await exchange.event({ type: 'assistant.delta', delta: 'The pl' });
    });
    keep(client, 'c1', { message: 'Which plan?' });
    await nextEvent(client, 'c1');
    const at = Number((await follow(client))[0]?.started_at);
    const rows = [
      { content: 'Which plan?', at: at - 60 },
      { role: 'assistant', content: 'An older answer', at: at - 59 },
      { content: 'Which plan?', at: at + 0.1 },
      { role: 'assistant', content: 'The plan is good', at: at + 5 },
    ];
    const sql = messagesSql(rows.map((row) => ({ session: 's9', ...row })));
    createDatabase(join(target.agentHome, 'state.db'), CONVERSATIONS + sql);
    await target.restart();
    const later = await again(target, device);
    const recovered = { state: 'done', recovered: true, preview: 'The plan is good' };
    await expect.poll(async () => (await follow(later))[0]).toMatchObject(recovered);
  });

  it('an expired grant is 403, before any parameter is checked', async () => {
    const target = await start();
    const { token } = await pair(target);
    const session = target.relay?.sessions.authenticate(token);
    if (session) session.grants = { ...session.grants, chat: 1 };
    for (const path of ['/chat/history', '/chat/search']) expect((await ask(target, token, path)).status).toBe(403);
  });

  it("read the agent's database, and none of a profile that is not there", async () => {
    const target = await start();
    const { token } = await pair(target);
    createDatabase(
      join(target.agentHome, 'state.db'),
      `${CONVERSATIONS} ${sessionsSql({ s1: 'Greeting' })} ${messagesSql([
        { content: 'Hello there', at: 1790000000.25 },
        { role: 'assistant', content: 'Good morning', at: 1790000001 },
      ])} ${FULL_TEXT}`,
    );
    expect(await ask(target, token, '/chat/history?session_id=s1&before=&limit=&profile=')).toEqual({
      status: 200,
      body: {
        items: [
          { id: '1', role: 'user', text: 'Hello there', ts: 1790000000.25 },
          { id: '2', role: 'assistant', text: 'Good morning', ts: 1790000001 },
        ],
        has_more: false,
        source: 'agent',
      },
    });
    expect((await ask(target, token, '/chat/history?session_id=s1&before=2&limit=1')).body.items).toHaveLength(1);
    expect((await ask(target, token, '/chat/history?session_id=s1&before=99')).status).toBe(400);
    expect((await ask(target, token, '/chat/history?session_id=s2')).status).toBe(404);
    expect((await ask(target, token, '/chat/search?q=good%20MORNING')).body).toEqual({
      hits: [{ session_id: 's1', title: 'Greeting', id: '2', ts: 1790000001, excerpt: 'Good morning' }],
    });
    for (const route of ROUTES) {
      expect(await ask(target, token, `${route}&profile=nobody`)).toEqual({
        status: 404,
        body: { ok: false, error: 'profile_not_found', profile: 'nobody' },
      });
    }
  });

  it('a damaged database is no error of the chat', async () => {
    const target = await start();
    const { token } = await pair(target);
    await writeFile(join(target.agentHome, 'state.db'), 'SQLite format 3\0'.repeat(500));
    const relay = { items: [], has_more: false, source: 'relay' };
    expect(await ask(target, token, '/chat/history?session_id=s1')).toEqual({ status: 200, body: relay });
    expect(await ask(target, token, '/chat/search?q=word')).toEqual({ status: 200, body: { hits: [] } });
  });
});
