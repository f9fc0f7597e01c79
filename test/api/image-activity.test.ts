import { mkdir, readdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { expect, it } from 'vitest';
import { createDatabase, MESSAGES, startWriter, WAL } from '../support/agent-database.ts';
import { bearer, describeMatrix, pair, type Target } from '../support/relay.ts';

const call = (id: unknown, name = 'image_generate') => ({
  id,
  type: 'function',
  function: { name, arguments: 'SECRET' },
});
const quote = (value: unknown) => (value === null ? 'NULL' : `'${String(value).replaceAll("'", "''")}'`);
const assistant = (at: number | string, calls: unknown, { session = 's1', active = 1 } = {}) =>
  `INSERT INTO messages (session_id, role, content, tool_calls, timestamp, active) VALUES (${quote(session)},
   'assistant', 'SECRET', ${quote(typeof calls === 'string' ? calls : JSON.stringify(calls))}, ${at}, ${active});`;
const result = (at: number, id: string, name = 'image_generate') =>
  `INSERT INTO messages (session_id, role, content, tool_name, tool_call_id, timestamp) VALUES ('s1', 'tool', 'SECRET',
   ${quote(name)}, ${quote(id)}, ${at});`;

async function ask(target: Target, token: string, query: string) {
  const response = await target.fetch(`/chat/image-activity${query}`, { headers: bearer(token) });
  return { status: response.status, body: await response.json() };
}

describeMatrix(
  'GET /chat/image-activity (contract 04 §7)',
  (start) => {
    it('checks bearer, grant, session, since and profile in that order', async () => {
      const target = await start();
      const { token } = await pair(target);
      expect((await target.fetch('/chat/image-activity')).status).toBe(401);
      expect((await target.fetch('/chat/image-activity', { method: 'POST' })).status).toBe(405);
      for (const query of ['', '?session_id=', '?session_id=%20&since=1', `?session_id=${'x'.repeat(257)}&since=x`]) {
        expect(await ask(target, token, query)).toMatchObject({ status: 400, body: { error: 'invalid_session_id' } });
      }
      for (const since of [
        '',
        '0x10',
        'NaN',
        'Infinity',
        '-1',
        '1e999',
        '1e',
        'e5',
        '1 2',
        '--1',
        '1,5',
        'Inf',
        '1'.repeat(9000),
      ]) {
        const query = `?session_id=s1&profile=..&since=${since}`;
        expect([since, await ask(target, token, query)]).toMatchObject([
          since,
          { status: 400, body: { error: 'invalid_since' } },
        ]);
      }
      expect((await ask(target, token, '?session_id=s1')).body.error).toBe('invalid_since');
      for (const profile of ['nobody', '..', '.', 'a/b', 'a\\b', '../profiles/work']) {
        const query = `?session_id=s1&since=0&profile=${encodeURIComponent(profile)}`;
        expect(await ask(target, token, query)).toEqual({
          status: 404,
          body: { ok: false, error: 'profile_not_found', profile },
        });
      }
    });

    it('an expired grant is 403, before any parameter is checked', async () => {
      const target = await start();
      const { token } = await pair(target);
      const session = target.relay?.sessions.authenticate(token);
      expect(session?.grants).toHaveProperty('chat');
      if (session) session.grants = { ...session.grants, chat: 1 };
      expect((await ask(target, token, '')).status).toBe(403);
    });

    it('answers with nothing when there is no database, for every form of since', async () => {
      const target = await start();
      const { token } = await pair(target);
      for (const since of ['0', '1.79E9', '1.79e%2B9', '1.79e+9', '.5', '5.', '1e-3', '%201%20']) {
        expect(await ask(target, token, `?session_id=%20s1%20&since=${since}`)).toEqual({
          status: 200,
          body: { session_id: 's1', profile: 'default', activities: [] },
        });
      }
      expect(await readdir(target.agentHome)).not.toContain('state.db');
    });

    it('shows calls and their completion, from the WAL of a running agent', async () => {
      const target = await start();
      const { token } = await pair(target);
      const agent = await startWriter(join(target.agentHome, 'state.db'));
      await agent.run(
        [
          WAL,
          MESSAGES,
          assistant(99, [call('old')]),
          assistant(200.5, [call('c1'), call('c0', 'web_search'), { id: 'c2', name: 'image_generate' }]),
          assistant(201, [call('')]),
          assistant(201, [call(7), 'text', null, 5, [call('nested')], { id: 'no-name' }]),
          assistant(201, '{"id":"object"}'),
          assistant(201, 'not json'),
          assistant(201, null),
          assistant("'soon'", [call('text-time')]),
          assistant(202, [call('inactive')], { active: 0 }),
          assistant(202, [call('other')], { session: 's2' }),
          assistant(203, [call('c1'), call('c3')]),
          result(204, 'c1'),
          result(205, 'unknown'),
          result(206, 'c2', 'web_search'),
        ].join('\n'),
      );
      const { body } = await ask(target, token, '?session_id=s1&since=100');
      const running = { tool_name: 'image_generate', state: 'running', completed_at: null };
      expect(body.activities).toEqual([
        { ...running, call_id: 'c1', started_at: 200.5, state: 'completed', completed_at: 204 },
        { ...running, call_id: 'c2', started_at: 200.5 },
        { ...running, call_id: 'c3', started_at: 203 },
      ]);
      expect(JSON.stringify(body)).not.toContain('SECRET');
      await agent.run(result(300, 'c3'));
      expect((await ask(target, token, '?session_id=s1&since=203')).body.activities).toEqual([
        { ...running, call_id: 'c1', started_at: 203, state: 'completed', completed_at: 204 },
        { ...running, call_id: 'c3', started_at: 203, state: 'completed', completed_at: 300 },
      ]);
      expect((await ask(target, token, "?session_id=s1' OR 1=1&since=0")).body.activities).toEqual([]);
    });

    it('reads the newest 250 messages', async () => {
      const target = await start();
      const { token } = await pair(target);
      const rows = Array.from({ length: 260 }, (_, at) => assistant(1000 + at, [call(`c${at}`)])).reverse();
      createDatabase(join(target.agentHome, 'state.db'), `${MESSAGES} BEGIN; ${rows.join('')} COMMIT;`);
      const { activities } = (await ask(target, token, '?session_id=s1&since=0')).body;
      expect(activities).toHaveLength(250);
      expect(activities[0]).toMatchObject({ call_id: 'c10', started_at: 1010 });
      expect(activities.at(-1)).toMatchObject({ call_id: 'c259' });
    });

    it('reads the database of the profile; default follows active_profile', async () => {
      const target = await start();
      const { token } = await pair(target);
      const work = join(target.agentHome, 'profiles/work');
      await mkdir(work, { recursive: true });
      createDatabase(join(target.agentHome, 'state.db'), MESSAGES + assistant(5, [call('root')]));
      createDatabase(join(work, 'state.db'), MESSAGES + assistant(5, [call('work')]));
      const seen = async (profile: string) =>
        (await ask(target, token, `?session_id=s1&since=0&profile=${profile}`)).body.activities[0].call_id;
      expect(await seen('work')).toBe('work');
      await writeFile(join(target.agentHome, 'active_profile'), 'work\n');
      // A named profile becomes the default only with a configuration.
      expect(await seen('default')).toBe('root');
      await writeFile(join(work, 'config.yaml'), '');
      expect(await seen('default')).toBe('work');
      expect(await seen('')).toBe('work');
    });

    it.each([
      ['corrupt', (path: string) => writeFile(path, 'SQLite format 3\0'.repeat(500))],
      ['of another schema', async (path: string) => createDatabase(path, 'CREATE TABLE messages (id)')],
    ])('answers with nothing for a database that is %s', async (_name, make) => {
      const target = await start();
      const { token } = await pair(target);
      await make(join(target.agentHome, 'state.db'));
      expect(await ask(target, token, '?session_id=s1&since=0')).toMatchObject({
        status: 200,
        body: { activities: [] },
      });
    });
  },
  ['node'],
);

describeMatrix(
  'GET /chat/image-activity without a host (contract 04 §7)',
  (start) => {
    it('is 501 once the bearer is checked', async () => {
      const target = await start();
      const { token } = await pair(target);
      expect((await target.fetch('/chat/image-activity')).status).toBe(401);
      expect((await ask(target, token, '?session_id=s1&since=0')).status).toBe(501);
    });
  },
  ['edge'],
);
