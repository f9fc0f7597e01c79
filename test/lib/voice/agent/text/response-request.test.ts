import { expect, it } from 'vitest';
import type { Result } from '../../../../../lib/voice/agent/core/state.ts';
import type { ResultDelivery } from '../../../../../lib/voice/agent/settings.ts';
import { responseRequest } from '../../../../../lib/voice/agent/text/response-request.ts';

const resultOf = (members: Partial<Result>): Result => ({
  runKey: 1,
  runId: 'run-7',
  request: 'When?',
  answer: 'Noon.',
  isOk: true,
  isBackground: false,
  callId: 'call-7',
  toolCount: 0,
  lastToolName: null,
  isReoffered: false,
  ...members,
});
const deliver = (mode: ResultDelivery, members: Partial<Result> = {}) =>
  responseRequest({ type: 'delivery', mode, result: resultOf(members) });

it('06 §7.1: a delivery is word for word only in its mode, and never of JSON or of a failure', () => {
  const verbatim = deliver('speak_verbatim');
  expect(verbatim).toEqual({ instructions: expect.stringContaining('word for word'), exactText: 'Noon.' });
  expect(verbatim.instructions).not.toMatch(/run-7|call-7/);
  const described = { instructions: expect.stringContaining('short natural summary') };
  expect(deliver('speak_when_idle')).toEqual(described);
  expect(deliver('notify_then_speak')).toEqual(described);
  const json = deliver('speak_verbatim', { answer: '{"a":1}' });
  expect(json).toEqual(described);
  expect(json.instructions).toContain('A result with a.');
  const failed = deliver('speak_verbatim', { answer: 'no network', isOk: false });
  expect(failed).toEqual(described);
  expect(failed.instructions).toContain('The answer: The task has failed: no network');
});

const request = `When?  ${'x'.repeat(2000)}`;
const answer = `At noon. ${'word '.repeat(1000)}`;

it.each([
  ['speech', deliver('speak_verbatim', { request, answer })],
  ['the next turn', responseRequest({ type: 'delivered', request, answer })],
])('06 §7.1, §7.3: the request for %s has the question and the answer, both bounded', (_name, { instructions }) => {
  const [, asked, spoken] = /The user asked: (.*)\nThe answer: (.*)$/.exec(instructions ?? '') ?? [];
  expect(asked).toHaveLength(1000);
  expect(asked).toMatch(/^When\? x/);
  expect(spoken).toHaveLength(1400);
  expect(spoken).toMatch(/^At noon\. word/);
});

it('06 §6.9: the rest of an answer names what the user has heard', () => {
  const { instructions } = responseRequest({ type: 'rest', said: 'It is\nalmost', result: resultOf({}) });
  expect(instructions).toMatch(/The user asked: When\?\nThe answer: Noon\.\nThe user has heard: It is almost$/);
  expect(responseRequest({ type: 'rest', said: 'x' }).instructions).not.toContain('The answer:');
});

it('a plain request has no words of its own', () => expect(responseRequest(null)).toEqual({}));
