import { expect, it } from 'vitest';
import { connect } from '../support/client.ts';
import { startRelayProcess } from '../support/process.ts';
import { randomCode } from '../support/relay.ts';

const ROUNDS = 6;
const PER_ROUND = 40;

/** Contract 04 §5.4a. Without leases, 31 of 586 replies were handed out twice in such rounds (2026-11). */
it('loses no reply over kill -9, and hands out none again that was acknowledged', { timeout: 300_000 }, async () => {
  const relay = await startRelayProcess();
  const code = randomCode();
  await relay.ask('/pairing/register', { method: 'POST', body: { code } });
  const sent = new Set<string>();
  const got = new Set<string>();
  const acknowledged = new Set<string>();
  const again: string[] = [];
  let session: Record<string, unknown> = { pairing_code: code };
  let isOver = false;

  /** Takes replies with leases, as `svc phone send --wait` does, and goes on when the relay is gone. */
  async function reader(): Promise<void> {
    while (!isOver) {
      try {
        const { json } = await relay.ask('/phone/replies?timeout=1&lease=1');
        const ids = (json.replies as { message_id: string }[]).map(({ message_id: id }) => id);
        again.push(...ids.filter((id) => acknowledged.has(id)));
        for (const id of ids) got.add(id);
        if (json.lease_id === undefined) continue;
        const answer = await relay.ask('/phone/replies/ack', { method: 'POST', body: { lease_id: json.lease_id } });
        if (answer.json.taken === ids.length) for (const id of ids) acknowledged.add(id);
      } catch {
        await new Promise((resolve) => setTimeout(resolve, 20));
      }
    }
  }
  const reading = reader();

  const missing = () => [...sent].filter((id) => !got.has(id));
  for (let round = 0; round < ROUNDS; round++) {
    // The relay keeps a hundred. A reader whose leases a kill has cut off waits for their ends.
    await expect.poll(missing, { timeout: 30_000 }).toEqual([]);
    const client = await connect(relay.wsUrl);
    client.send('system', 'auth', { ...session, device_id: 'phone-1', device_name: 'Phone' });
    const { payload } = await client.next({ type: 'auth.ok' });
    session = { session_token: payload.session_token };
    for (let n = 0; n < PER_ROUND; n++) {
      const id = `r${round}-${n}`;
      client.send('proactive', 'proactive.reply', { text: 'x', message_id: id }, id);
      // Acknowledged replies must not be lost; the kill falls somewhere into the last ones.
      if (n < PER_ROUND - 5) {
        await client.next({ id });
        sent.add(id);
      }
    }
    await relay.restart();
    client.terminate();
  }
  await expect.poll(missing, { timeout: 30_000 }).toEqual([]);
  isOver = true;
  await reading;
  expect(acknowledged.size).toBeGreaterThan(0);
  expect(again).toEqual([]);
});
