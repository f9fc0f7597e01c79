import { expect, it, vi } from 'vitest';
import { say, stateOf, subscribe } from '../support/custody.ts';
import { authenticate, describeMatrix, pair } from '../support/relay.ts';

describeMatrix('custody of messages (contract 04 §5.4a)', (start, runtime) => {
  it('§5.4a: a receipt or an answer frees the message; without one it outlives the socket', async () => {
    const target = await start();
    const phone = await pair(target);
    await subscribe(phone.client);
    await say(target, 'm0');
    if (runtime === 'edge') await phone.client.next({ channel: 'system', type: 'ping' });
    else await new Promise((resolve) => phone.client.socket.once('ping', resolve));
    // No ping is answered any more.
    phone.client.ignorePings();
    for (const id of ['m1', 'm2', 'm3']) await say(target, id);
    phone.client.send('proactive', 'proactive.shown', { message_id: 'm1' });
    phone.client.send('proactive', 'proactive.reply', { text: 'yes', reply_to: 'm3', message_id: 'r' }, 'r');
    await phone.client.next({ id: 'r' });
    phone.client.terminate();
    await vi.waitFor(async () => expect(await stateOf(target, 'm2')).toBe('queued'));
    expect([await stateOf(target, 'm1'), await stateOf(target, 'm3')]).toEqual(['shown', 'answered']);
    const { client } = await authenticate(target, { session_token: phone.token });
    await subscribe(client);
    expect((await client.next({ type: 'proactive.backlog.complete' })).payload).toMatchObject({ count: 1 });
    expect(client.frames.filter(({ type }) => type === 'phone.message').map(({ id }) => id)).toEqual(['m2']);
    client.close();
  });
});
