import { expect, onTestFinished } from 'vitest';
import type { OtherRelay } from '../../lib/phone/phone.ts';
import { startBuiltTarget } from '../support/built-relay.ts';
import { connectMcp, textOf } from '../support/mcp.ts';
import { itOnNode, pair, post } from '../support/relay.ts';

itOnNode('12 §2: a message is refused with a code over HTTP and MCP while too much waits for home', async () => {
  const target = await startBuiltTarget({});
  onTestFinished(target.stop);
  let isFull = true;
  const home: OtherRelay = {
    report: () => true,
    replied: () => true,
    onTaken: () => {},
    isEdge: () => true,
    given: () => true,
    isFull: () => isFull,
    changed: () => {},
  };
  target.relay.phone.shared.join(home);
  const say = (text: string) => target.operator('/phone/message', post({ text }));
  const refused = await say('one too many');
  expect([refused.status, await refused.json()]).toEqual([
    503,
    { ok: false, error: 'too much waits for home: try again later', error_code: 'mirror_backlog' },
  ]);
  const mcp = await connectMcp(target, (await pair(target)).token);
  onTestFinished(mcp.close);
  const result = await mcp.client.callTool({ name: 'phone_send', arguments: { text: 'one too many' } });
  expect(result.isError).toBe(true);
  expect(JSON.parse(textOf(result))).toMatchObject({
    refusal: 'mailbox full',
    error_code: 'mirror_backlog',
    retry: true,
  });
  isFull = false;
  expect((await say('home is back')).status).toBe(200);
});
