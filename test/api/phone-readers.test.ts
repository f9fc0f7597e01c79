import { expect, it } from 'vitest';
import { cleanups, clockedTargets } from '../support/built-relay.ts';
import { connect } from '../support/client.ts';
import { bearer, describeMatrix, type Paired, pair, type Target } from '../support/relay.ts';

const pending = cleanups();
const clocked = clockedTargets();

const urlOf = ({ wsUrl }: Target) => wsUrl.replace(/ws$/, 'phone/replies');
async function listen(target: Target, token: string) {
  const reader = await connect(urlOf(target), { headers: bearer(token) });
  pending.push(() => reader.terminate());
  return reader;
}
const acknowledge = (reader: Awaited<ReturnType<typeof listen>>, id: string) =>
  reader.raw(JSON.stringify({ type: 'ack', message_id: id }));
async function reply({ client }: Paired, id: string): Promise<void> {
  client.send('proactive', 'proactive.reply', { text: id, message_id: id }, id);
  await client.next({ id });
}
const unread = async (target: Target): Promise<string[]> => {
  const answer = await (await target.operator('/phone/replies?timeout=0&lease=1')).json();
  return (answer as { replies: { message_id: string }[] }).replies.map(({ message_id: id }) => id);
};

describeMatrix('the socket on which an agent waits for replies (contract 12 §6, §7)', (start, runtime) => {
  it('gets each reply as one frame, which is its own once it acknowledges it', async () => {
    const target = await start();
    const phone = await pair(target);
    const reader = await listen(target, phone.token);
    await reply(phone, 'r1');
    await reply(phone, 'r2');
    expect(await reader.next({ type: 'reply' })).toMatchObject({ text: 'r1', message_id: 'r1', chat_id: null });
    expect(await reader.next({ type: 'reply' })).toMatchObject({ message_id: 'r2' });
    expect(await unread(target), 'they have a reader').toEqual([]);
    acknowledge(reader, 'r1');
    reader.close();
    const other = await listen(target, phone.token);
    expect(await other.next({ type: 'reply' })).toMatchObject({ message_id: 'r2' });
    acknowledge(other, 'r2');
    await reply(phone, 'r3');
    expect(await other.next({ type: 'reply' })).toMatchObject({ message_id: 'r3' });
    expect(other.frames).toEqual([]);
  });

  it('is refused to strangers, and ends with the session', async () => {
    const target = await start();
    const phone = await pair(target);
    await expect(listen(target, 'wrong')).rejects.toMatchObject({ status: 401 });
    const page = connect(urlOf(target), { headers: { origin: 'https://page.example' } });
    await expect(page, 'a page that somebody on this host has open').rejects.toMatchObject({ status: 401 });
    const reader = await listen(target, phone.token);
    const revoked = await target.operator(`/sessions/${phone.token.slice(0, 8)}`, {
      method: 'DELETE',
      headers: { 'x-svc-operator': '1' },
    });
    expect(revoked.status).toBe(200);
    expect(await reader.closed()).toMatchObject({ code: 4401 });
    const again = await pair(target);
    const broken = await listen(target, again.token);
    broken.raw('hello');
    expect(await broken.closed()).toEqual({ code: 1008, reason: 'not an ack {message_id}' });
  });

  it('that acknowledges nothing for a minute is closed, and others get its replies', async () => {
    const { target, clock } = await clocked();
    const phone = await pair(target);
    const silent = await listen(target, phone.token);
    await reply(phone, 'r1');
    await silent.next({ type: 'reply' });
    await clock.advanceAsync(61_000);
    expect(await silent.closed()).toMatchObject({ code: 1008 });
    expect(await unread(target)).toEqual(['r1']);
  });

  it.runIf(runtime === 'edge')('ends with the operator token that opened it', async () => {
    const target = await start();
    const phone = await pair(target);
    const reader = await listen(target, (await target.operatorTokenFor?.('10s')) ?? '');
    await reply(phone, 'r1');
    expect(await reader.next({ type: 'reply' })).toMatchObject({ message_id: 'r1' });
    expect(await reader.closed()).toEqual({ code: 4401, reason: 'operator token expired' });
    await expect.poll(() => unread(target)).toEqual(['r1']);
  });

  it('has what it was given and did not acknowledge again after a restart, once', async () => {
    const target = await start();
    const phone = await pair(target);
    const reader = await listen(target, phone.token);
    await reply(phone, 'r1');
    await reader.next({ type: 'reply' });
    await target.restart();
    const again = await listen(target, phone.token);
    expect(await again.next({ type: 'reply' })).toMatchObject({ message_id: 'r1' });
    acknowledge(again, 'r1');
    await expect.poll(() => unread(target)).toEqual([]);
    expect(again.frames).toEqual([]);
  });
});
