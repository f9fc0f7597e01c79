import { expect, it } from 'vitest';
import { cleanups, clockedTargets } from '../support/built-relay.ts';
import { startFlakyProxy } from '../support/flaky-proxy.ts';
import { bearer, describeMatrix, type Paired, pair, post, type Target } from '../support/relay.ts';

const pending = cleanups();
const clocked = clockedTargets();

interface Answer {
  replies: { text: string; message_id: string }[];
  lease_id?: string;
}

const read = async (target: Target, query: string): Promise<Answer> =>
  (await (await target.operator(`/phone/replies?${query}`)).json()) as Answer;
const ids = ({ replies }: Answer) => replies.map(({ message_id: id }) => id);
const acknowledge = async (target: Target, lease: unknown) => {
  const response = await target.operator('/phone/replies/ack', post({ lease_id: lease }));
  return [response.status, ((await response.json()) as { taken?: number }).taken];
};
async function reply({ client }: Paired, id: string, text = id): Promise<void> {
  client.send('proactive', 'proactive.reply', { text, message_id: id }, id);
  await client.next({ id });
}
const stateOf = async (target: Target, id: string) => {
  const answer = await target.operator('/phone/history', { headers: { 'x-svc-operator': '1' } });
  const { items } = (await answer.json()) as { items: { message_id: string; state: string }[] };
  return items.find((item) => item.message_id === id)?.state;
};

describeMatrix('leases of replies (contract 04 §5.4a)', (start) => {
  it('§5.4a: replies of a lease are taken by its acknowledgement, also after a restart', async () => {
    const target = await start();
    const phone = await pair(target);
    await reply(phone, 'r1');
    await reply(phone, 'r2');
    const lent = await read(target, 'timeout=0&lease=30');
    expect([ids(lent), lent.lease_id]).toEqual([['r1', 'r2'], expect.stringMatching(/^[0-9a-f]{32}$/)]);
    expect(await read(target, 'timeout=0&lease=30'), 'they have a reader').toEqual({ replies: [] });
    expect(await read(target, 'timeout=0')).toEqual({ replies: [] });
    expect(await stateOf(target, 'r1')).toBe('waiting');
    phone.client.close();
    await target.restart();
    expect(await read(target, 'timeout=0')).toEqual({ replies: [] });
    expect(await acknowledge(target, lent.lease_id)).toEqual([200, 2]);
    expect(await acknowledge(target, lent.lease_id)).toEqual([200, 0]);
    expect(await stateOf(target, 'r2')).toBe('taken');
    await target.restart();
    expect(await read(target, 'timeout=0')).toEqual({ replies: [] });
  });

  it('§5.4a: they come again after it, and an acknowledgement that is late takes what nobody else was given', async () => {
    const target = await start();
    const phone = await pair(target);
    await reply(phone, 'r1');
    const lent = await read(target, 'timeout=0&lease=1');
    // Waits over the end of the lease.
    const again = await read(target, 'timeout=10&lease=30');
    expect(ids(again)).toEqual(['r1']);
    expect(await acknowledge(target, lent.lease_id)).toEqual([200, 0]);
    expect(await acknowledge(target, again.lease_id)).toEqual([200, 1]);
  });

  it('§5.4a: bad leases are refused; a bearer needs the grant', async () => {
    const target = await start();
    const phone = await pair(target, { policy: { grants: { chat: 1, terminal: 1, tui: 1, bridge: 1 } } });
    for (const query of ['lease=', 'lease=x', 'lease=NaN']) {
      expect((await target.operator(`/phone/replies?timeout=0&${query}`)).status, query).toBe(400);
    }
    for (const id of [undefined, null, 5, '', 'x'.repeat(129)]) expect((await acknowledge(target, id))[0]).toBe(400);
    expect(await acknowledge(target, 'unknown')).toEqual([200, 0]);
    const init = { ...post({ lease_id: 'unknown' }), headers: bearer(phone.token) };
    expect((await target.fetch('/phone/replies/ack', init)).status).toBe(200);
    expect((await target.fetch('/phone/replies/ack', { ...init, headers: bearer('wrong') })).status).toBe(401);
    phone.client.close();
  });
});

it('§5.4a: a response that is lost on the way costs no reply with a lease', async () => {
  const { clock, target } = await clocked();
  const proxy = await startFlakyProxy({ port: target.port, seed: 1, faults: ['cut'], after: [400, 400] });
  pending.push(proxy.close);
  const phone = await pair(target);
  await reply(phone, 'r1');
  const lost = await fetch(`http://127.0.0.1:${proxy.port}/phone/replies?timeout=0&lease=30`)
    .then((response) => response.json())
    .catch(() => 'lost');
  expect(lost).toBe('lost');
  clock.advance(30_000);
  expect(ids(await read(target, 'timeout=0&lease=30'))).toEqual(['r1']);
});
