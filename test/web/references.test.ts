import { expect, it } from 'vitest';
import { splitAtReferences } from '../../handlers/web/app/media/references.ts';

const TOKEN = 'AbCdEfGhIjKlMnOpQrStUv';
const file = (place: object, name = '', isSensitive = false) => ({ place, name, isSensitive });

it.each([
  ['text alone, https://example.org/a.png', ['text alone, https://example.org/a.png']],
  [`See MEDIA:svc-relay://${TOKEN}.`, ['See ', file({ token: TOKEN }), '.']],
  [`svc-relay://${TOKEN}`, [file({ token: TOKEN })]],
  [
    'MEDIA:/tmp/a.png, and MEDIA:"/tmp/b c.png"',
    [file({ path: '/tmp/a.png' }, 'a.png'), ', and ', file({ path: '/tmp/b c.png' }, 'b c.png')],
  ],
  ['![A cat](/tmp/cat 1.png)', [file({ path: '/tmp/cat 1.png' }, 'A cat')]],
  [`![](MEDIA:svc-relay://${TOKEN})`, [file({ token: TOKEN })]],
  ['||![A cat](/tmp/cat.png)||', [file({ path: '/tmp/cat.png' }, 'A cat', true)]],
  ['|| MEDIA:/tmp/cat.png || seen', [file({ path: '/tmp/cat.png' }, 'cat.png', true), ' seen']],
  ['![nsfw cat](/tmp/cat.png)', [file({ path: '/tmp/cat.png' }, 'nsfw cat', true)]],
  ['![x](data:image/png;base64,AAAA)', [file({ data: 'data:image/png;base64,AAAA' }, 'x')]],
  ['![x](data:image/svg+xml;base64,AAAA)', ['![x](data:image/svg+xml;base64,AAAA)']],
  ['![x](https://example.org/a.png)', ['![x](https://example.org/a.png)']],
  ['![x](//example.org/a.png) ![y](../a.png)', ['![x](//example.org/a.png) ![y](../a.png)']],
  ['MEDIA:svc-relay://../../sessions', ['MEDIA:svc-relay://../../sessions']],
  ['`MEDIA:/tmp/a.png`', ['`MEDIA:/tmp/a.png`']],
  ['```sh\necho MEDIA:/tmp/a.png\n```', ['```sh\necho MEDIA:/tmp/a.png\n```']],
  ['```\nMEDIA:/tmp/a.png', ['```\nMEDIA:/tmp/a.png']],
])('04 §3.1: splits %s', (text, pieces) => {
  expect(splitAtReferences(text, true)).toEqual(pieces);
});

it('leaves a marker at the end alone while its rest may still arrive', () => {
  expect(splitAtReferences('Look: MEDIA:/tmp/a', false)).toEqual(['Look: MEDIA:/tmp/a']);
  expect(splitAtReferences('Look: MEDIA:/tmp/a.png\n', false)).toEqual([
    'Look: ',
    file({ path: '/tmp/a.png' }, 'a.png'),
  ]);
  expect(splitAtReferences('![A](/tmp/a.png)', false)).toEqual([file({ path: '/tmp/a.png' }, 'A')]);
});

it('splits a long text in no time', () => {
  for (const text of [
    'MEDIA:'.repeat(50_000),
    '![['.repeat(50_000),
    '||'.repeat(100_000),
    '```\n'.repeat(50_000),
    ' '.repeat(200_000),
    `![](${' '.repeat(200_000)}`,
    `||${' '.repeat(100_000)}`,
  ]) {
    const began = performance.now();
    splitAtReferences(text, true);
    expect([text.slice(0, 8), performance.now() - began < 2000]).toEqual([text.slice(0, 8), true]);
  }
});
