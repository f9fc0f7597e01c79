import { expect, it } from 'vitest';
import { setUp, TYPED } from '../support/chat.ts';
import { again, follow, keep, nextEvent, nextTurn, resume } from '../support/chat-turns.ts';
import { describeMatrix } from '../support/relay.ts';

const EVENTS = [
  { type: 'run.started', run_id: 'r1' },
  { type: 'assistant.delta', delta: 'Let me ' },
  { type: 'assistant.delta', delta: 'look.\n' },
  { type: 'tool.started', tool_name: 'shell', call_id: 't1', args: { cmd: 'ls' } },
  { type: 'tool.progress', delta: 'thinking' },
  { type: 'tool.completed', tool_name: 'shell', call_id: 't1', result: 'a b' },
  { type: 'tool.failed', tool_name: 'web', call_id: 't2', error: 'offline' },
  { type: 'assistant.delta', delta: 'It is 😀.' },
  { type: 'assistant.completed', content: 'It is 😀.' },
  { type: 'run.completed', usage: { input_tokens: 5 } },
  { type: 'done', state: 'final' },
];
const TOOLS = [
  { id: 't1', name: 'shell', state: 'done', preview: 'a b' },
  { id: 't2', name: 'web', state: 'failed', preview: 'offline' },
];

describeMatrix('chat turns whose socket is cut (contract 10 §1)', (start) => {
  it('lose and repeat nothing, whichever event came last before the cut', async () => {
    const { api, target, device, client: watcher } = await setUp(start);
    api.onStream((exchange) => exchange.open());
    await follow(watcher);
    // The last one that a client has seen: none, or any but the end of the turn.
    for (let cut = 0; cut < EVENTS.length - 1; cut++) {
      const first = await again(target, device);
      keep(first, 'c1', { client_turn_id: `cut-${cut}` });
      const { turn_id } = await nextTurn(watcher);
      const exchange = await api.request(cut);
      const seen: { seq: number; event: string }[] = [];
      for (const event of EVENTS.slice(0, cut)) {
        await exchange.event(event);
        seen.push(await nextEvent(first, 'c1'));
      }
      // In any order with the cut: before, while nobody listens, and after the return.
      await exchange.event(EVENTS[cut]);
      first.terminate();
      const second = await again(target, device, cut % 2 ? TYPED : {});
      const { type, payload } = await resume(second, { turn_id, after: seen.at(-1)?.seq }, 'r1');
      for (const event of EVENTS.slice(cut + 1)) await exchange.event(event);
      exchange.end();
      expect(await nextTurn(watcher)).toMatchObject({ turn_id, state: 'done', preview: 'Let me look. It is 😀.' });
      // What comes before the snapshot, with it and after it is the whole, once.
      const seqs: number[] = [];
      if (type === 'chat.snapshot') expect(payload.seq).toBeGreaterThanOrEqual(cut);
      else seqs.push(Number(payload.seq));
      const from = type === 'chat.snapshot' ? Number(payload.seq) : cut;
      if (cut % 2) while (seqs.at(-1) !== EVENTS.length) seqs.push((await nextEvent(second, 'r1')).seq);
      if (cut % 2) expect(seqs).toEqual(Array.from({ length: EVENTS.length - from }, (_, at) => from + 1 + at));
      expect(seen.map(({ seq, event }) => [seq, event])).toEqual(
        EVENTS.slice(0, cut).map(({ type }, at) => [at + 1, type]),
      );
      await expect
        .poll(async () => (await resume(second, { turn_id, after: 0 })).payload)
        .toMatchObject({
          state: 'done',
          question: 'hi',
          text: 'Let me look.\nIt is 😀.',
          tools: TOOLS,
          usage: { input_tokens: 5 },
          seq: EVENTS.length,
        });
      second.terminate();
    }
    expect(api.requests).toHaveLength(EVENTS.length - 1);
    expect(await follow(watcher)).toHaveLength(EVENTS.length - 1);
  });
});
