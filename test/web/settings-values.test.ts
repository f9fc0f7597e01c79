import { expect, it } from 'vitest';
import { createAnalytics, median } from '../../handlers/web/app/analytics.ts';
import { advance, agentTurn, type Turn } from '../../handlers/web/app/chat/turns.ts';
import { limitFor } from '../../handlers/web/app/lifetime.ts';
import { CHOICES, DEFAULTS, isAllowed, RANGES, type Settings } from '../../handlers/web/app/settings.ts';

it('spec 2.1, 8: defaults are allowed, and so are the ends of ranges and no more', () => {
  for (const [key, value] of Object.entries(DEFAULTS)) expect([key, isAllowed(key, value)]).toEqual([key, true]);
  for (const [key, [min, max]] of Object.entries(RANGES)) {
    const found = [min - 1, min, max, max + 1, min + 0.5, String(min), null].map((value) => isAllowed(key, value));
    expect([key, found]).toEqual([key, [false, true, true, false, false, false, false]]);
  }
  for (const [key, choices] of Object.entries(CHOICES)) {
    for (const value of choices) expect(isAllowed(key, value)).toBe(true);
    expect(isAllowed(key, typeof choices[0] === 'string' ? 'other' : 77)).toBe(false);
  }
  expect(isAllowed('show_reasoning', 1)).toBe(false);
  expect(isAllowed('last_session', 'x'.repeat(257))).toBe(false);
  for (const key of ['unknown', '__proto__', 'constructor', 'toString']) expect(isAllowed(key, {})).toBe(false);
});

it('spec 8: the limits of attachments are as specified', () => {
  expect([DEFAULTS.max_inbound_mb, RANGES.max_inbound_mb]).toEqual([25, [5, 100]]);
  expect([DEFAULTS.auto_fetch_mb, RANGES.auto_fetch_mb]).toEqual([2, [0, 50]]);
  expect(DEFAULTS.auto_fetch_on_cellular).toBe(false);
});

const DAY = 86_400;
const settings = (seconds: number, reason = '') =>
  ({ pair_ttl_seconds: { value: seconds }, insecure_reason: { value: reason } }) as Settings['values'];

it.each([
  // As the host decides.
  [-1, '', 30 * DAY, false, null],
  // 7 days over plain http, where the host has said nothing and there is no VPN.
  [-1, 'lan_only', 30 * DAY, true, 7 * DAY],
  [-1, 'tailscale_vpn', 30 * DAY, true, null],
  [-1, 'lan_only', 365 * DAY, true, null],
  [-1, 'lan_only', null, true, null],
  // What a person has chosen shortens, and never extends.
  [DAY, '', 30 * DAY, false, DAY],
  [DAY, '', null, false, DAY],
  [90 * DAY, '', 30 * DAY, true, null],
  [30 * DAY, '', 30 * DAY, false, null],
  [0, '', 30 * DAY, true, null],
])('spec 8: chosen %i, %s, session of %s s, plain %s: limited to %s', (chosen, reason, lifetime, isPlain, limit) => {
  const now = 1_800_000_000;
  const expiresAt = lifetime === null ? null : now + lifetime;
  expect(limitFor(settings(chosen, reason), { expiresAt, now, isPlain })).toBe(limit);
});

const event = (name: string, payload: Record<string, unknown> = {}) => ({
  type: 'stream.event',
  payload: { type: 'stream.event', schema_version: 1, session_id: 's', run_id: null, seq: 1, event: name, payload },
});
const after = (...steps: ReturnType<typeof event>[]): Turn => steps.reduce(advance, agentTurn('r', 0));

it('02 §5.5: reads typed events by all of the names that agents give them', () => {
  const turn = after(
    event('run.started'),
    event('reasoning_delta', { thinking_delta: 'Hm.' }),
    event('tool.started', { tool_name: 'weather', tool_call_id: 'c', args: { city: 'Bern' } }),
    event('tool.completed', { tool_name: 'weather', tool_call_id: 'c', result_preview: 'sunny' }),
    event('content_delta', { content: 'It is ' }),
    event('assistant.delta', { delta: 'sunny.' }),
    event('run.completed', { usage: { input_tokens: 1200, output_tokens: 34, total_tokens: 1234 } }),
  );
  expect(turn).toMatchObject({ text: 'It is sunny.', reasoning: 'Hm.', state: 'done' });
  expect(turn.tools).toEqual([{ id: 'c', name: 'weather', state: 'done', args: { city: 'Bern' }, result: 'sunny' }]);
  expect(turn.usage).toEqual({ input: 1200, output: 34, total: 1234 });
});

it('02 §5.5: an answer is stopped, broken, or whole at its end', () => {
  expect(after(event('assistant.delta', { delta: 'A' }), event('done', { cancelled: true })).state).toBe('stopped');
  expect(after(event('error', { message: 'out of tokens' }))).toMatchObject({
    state: 'broken',
    error: 'out of tokens',
  });
  expect(after(event('assistant.completed', { content: 'All.' }), event('done'))).toMatchObject({
    state: 'done',
    text: 'All.',
  });
});

it.each([
  [
    { prompt_tokens: 5, completion_tokens: 7 },
    { input: 5, output: 7, total: 12 },
  ],
  [{ total_tokens: 9 }, { input: 0, output: 0, total: 9 }],
  [{ input_tokens: -1, output_tokens: '7', total_tokens: 1.5 }, undefined],
  [{}, undefined],
  ['many', undefined],
])('spec 2.1: usage %j is read as %j', (usage, read) => {
  expect(after(event('run.completed', { usage })).usage).toEqual(read);
});

it('spec 2.1: times answers, counts failures, and keeps no more than the last samples', () => {
  let now = 0;
  const proof = { value: null };
  const analytics = createAnalytics({ session: { proof } } as never, () => now);
  const turn = agentTurn('r', 0);
  const answer = (state: Turn['state'], usage?: Turn['usage']) => {
    const timer = analytics.startAnswer();
    now += 100;
    timer.follow({ ...turn, text: 'A' });
    now += 300;
    timer.follow({ ...turn, text: 'AB' });
    timer.follow({ ...turn, text: 'AB', state, usage });
    timer.follow({ ...turn, text: 'AB', state, usage });
  };
  answer('done', { input: 1, output: 2, total: 3 });
  answer('stopped');
  answer('broken');
  expect(analytics.figures.value).toEqual({
    firstToken: [100, 100, 100],
    completion: [400],
    health: [],
    tokens: { input: 1, output: 2, total: 3, answers: 1 },
    streams: { done: 1, broken: 1 },
  });
  for (let count = 0; count < 600; count++) answer('done');
  expect(analytics.figures.value.firstToken).toHaveLength(500);
  expect(analytics.figures.value.streams.done).toBe(601);
});

it.each([
  [[], undefined],
  [[7], 7],
  [[9, 1, 5], 5],
  [[4, 1, 3, 2], 2.5],
])('spec 2.1: the median of %j is %s', (samples, middle) => {
  expect(median(samples)).toBe(middle);
});
