import { describe, expect, it } from 'vitest';
import { contextLines, readContextMessages, readHistory } from '../../../../../lib/voice/agent/text/context.ts';

describe('context of a request (contract 06 §3.3)', () => {
  it.each([undefined, null, {}, 'text', 7])('%j counts as empty', (value) => {
    expect(readContextMessages(value)).toEqual([]);
  });

  it('keeps messages of known roles with content', () => {
    expect(
      readContextMessages([
        { role: 'User', content: ' a \n b ', source: 'app' },
        { role: 'assistant', content: 'c', source: 's'.repeat(100) },
        { role: 'system', content: 'd', source: 7 },
        { role: 'tool', content: 'e' },
        { role: 'user', content: ' ' },
        { role: 'user', content: ['f'] },
        { content: 'g' },
        'h',
        null,
      ]),
    ).toEqual([
      { role: 'user', content: 'a b', source: 'app' },
      { role: 'assistant', content: 'c', source: 's'.repeat(80) },
      { role: 'system', content: 'd' },
    ]);
  });

  it('looks at the last 20, keeps the last 14, and 1,500 characters of each', () => {
    const message = (content: string) => ({ role: 'user', content });
    const contents = (messages: unknown[]) => readContextMessages(messages).map(({ content }) => content);
    const numbered = Array.from({ length: 30 }, (_, at) => message(String(at)));
    expect(contents(numbered)).toEqual(numbered.slice(-14).map(({ content }) => content));
    expect(contents([message('early'), ...Array(20).fill({ role: 'tool' })])).toEqual([]);
    expect(contents([message('x'.repeat(1501))])).toEqual([`${'x'.repeat(1499)}…`]);
  });
});

it('reads the messages of a chat session in any of their forms (contract 06 §3.3)', () => {
  const source = 'svc_session';
  expect(
    readHistory([
      { role: 'user', content: 'a' },
      { type: 'assistant', text: 'b' },
      { role: 'assistant', content: '', message: 'c' },
      { role: 'assistant', final_response: 'd' },
      { role: 'user', content: [{ type: 'text', text: 'e' }, { content: 'f' }, 'g', { image: 'x' }] },
      { role: 'tool', content: 'h' },
      { role: 'user' },
    ]),
  ).toEqual([
    { role: 'user', content: 'a', source },
    { role: 'assistant', content: 'b', source },
    { role: 'assistant', content: 'c', source },
    { role: 'assistant', content: 'd', source },
    { role: 'user', content: 'e f g', source },
  ]);
});

it('writes one line per message (contract 06 §5.4)', () => {
  expect(contextLines(readContextMessages([{ role: 'user', content: 'a\nb', source: 'x\ny' }]))).toEqual([
    'User (x y): a b',
  ]);
});
