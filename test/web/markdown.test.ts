import * as fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { type Block, createMarkdown, type Inline, safeAddress } from '../../handlers/web/app/markdown/parse.ts';
import { COSTLY_MARKDOWN, HARMFUL_MARKDOWN } from '../support/hostile-markdown.ts';
import { runs } from '../support/runs.ts';

/** All of a text at once. */
function read(text: string): readonly Block[] {
  const markdown = createMarkdown();
  markdown.update(text, true);
  while (markdown.step());
  return markdown.blocks;
}

/** A text that arrives in parts. */
function readParts(parts: readonly string[]): readonly Block[] {
  const markdown = createMarkdown();
  let text = '';
  for (const part of parts) {
    text += part;
    markdown.update(text, false);
    while (markdown.step());
  }
  markdown.update(text, true);
  while (markdown.step());
  return markdown.blocks;
}

const paragraph = (...children: Inline[]) => ({ kind: 'paragraph', children });
const tight = (...children: Inline[]) => ({ kind: 'tight', children });
const link = (href: string, ...children: Inline[]): Inline => ({ kind: 'link', href, children });

it.each<[string, unknown[]]>([
  ['Plain & simple', [paragraph('Plain & simple')]],
  [
    'a **b** *c* ~~d~~ `e`',
    [
      paragraph(
        'a ',
        { kind: 'strong', children: ['b'] },
        ' ',
        { kind: 'em', children: ['c'] },
        ' ',
        { kind: 'del', children: ['d'] },
        ' ',
        { kind: 'code', text: 'e' },
      ),
    ],
  ],
  ['## Head\ntext', [{ kind: 'heading', depth: 2, children: ['Head'] }, paragraph('text')]],
  [
    '- a\n- b',
    [
      {
        kind: 'list',
        start: null,
        items: [
          { isDone: null, blocks: [tight('a')] },
          { isDone: null, blocks: [tight('b')] },
        ],
      },
    ],
  ],
  [
    '3. a\n4. b',
    [
      {
        kind: 'list',
        start: 3,
        items: [
          { isDone: null, blocks: [tight('a')] },
          { isDone: null, blocks: [tight('b')] },
        ],
      },
    ],
  ],
  [
    '- [x] a\n- [ ] b',
    [
      {
        kind: 'list',
        start: null,
        items: [
          { isDone: true, blocks: [tight('a')] },
          { isDone: false, blocks: [tight('b')] },
        ],
      },
    ],
  ],
  ['> a', [{ kind: 'quote', blocks: [paragraph('a')] }]],
  [
    '|a|b|\n|:-|-:|\n|1|2|',
    [{ kind: 'table', align: ['left', 'right'], head: [['a'], ['b']], rows: [[['1'], ['2']]] }],
  ],
  ['```ts title\nlet a\n\n```\nb', [{ kind: 'code', language: 'ts', text: 'let a\n' }, paragraph('b')]],
  ['~~~\n```\n~~~', [{ kind: 'code', language: '', text: '```' }]],
  [
    '- a\n  ```sh\n  ls\n  ```',
    [
      {
        kind: 'list',
        start: null,
        items: [{ isDone: null, blocks: [tight('a'), { kind: 'code', language: 'sh', text: 'ls' }] }],
      },
    ],
  ],
  ['a\n\n---', [paragraph('a'), { kind: 'rule' }]],
  ['[a](https://b.example/c)', [paragraph(link('https://b.example/c', 'a'))]],
  [
    'https://b.example/c, d@e.example',
    [paragraph(link('https://b.example/c', 'https://b.example/c'), ', ', link('mailto:d@e.example', 'd@e.example'))],
  ],
  ['[a](javascript:alert(1))', [paragraph('[a](javascript:alert(1))')]],
  ['![a](https://b.example/c.png)', [paragraph(link('https://b.example/c.png', 'a'))]],
  ['a <b>c</b> &lt;d&gt;', [paragraph('a ', '<b>', 'c', '</b>', ' <d>')]],
  ['<div onclick=x>\n\nb', [{ kind: 'plain', text: '<div onclick=x>' }, paragraph('b')]],
  ['[a]: https://b.example', [paragraph('[a]: ', link('https://b.example/', 'https://b.example'))]],
  ['$a_1 * b_1$ and \\(c_2*d*\\), $5 and $6', [paragraph('$a_1 * b_1$', ' and ', '\\(c_2*d*\\)', ', $5 and $6')]],
  ['$$\na_1\\\\\nb_1*c*\n$$', [paragraph('$$\na_1\\\\\nb_1*c*\n$$')]],
  [
    'MEDIA:/tmp/a_b_c.png',
    [
      paragraph({
        kind: 'file',
        reference: { place: { path: '/tmp/a_b_c.png' }, name: 'a_b_c.png', isSensitive: false },
      }),
    ],
  ],
  ['`MEDIA:/tmp/a.png`', [paragraph({ kind: 'code', text: 'MEDIA:/tmp/a.png' })]],
  ['a\u202Eb', [paragraph('ab')]],
])('contract 10 §3: reads %j', (text, blocks) => {
  expect(read(text)).toEqual(blocks);
});

it('contract 10 §3: links lead to http, https and mailto alone', () => {
  expect(['https://a.example/', 'HTTP://a.example/', 'mailto:a@b.example'].map(safeAddress)).toEqual([
    'https://a.example/',
    'http://a.example/',
    'mailto:a@b.example',
  ]);
  for (const address of [
    'javascript:alert(1)',
    'java\nscript:x',
    'data:text/html,x',
    '//a.example',
    'x',
    'https:',
    'http:a',
  ])
    expect([address, safeAddress(address)]).toEqual([address, undefined]);
});

/** What a person sees of blocks. `tight` depends on what follows an item, and so on how much of it has arrived. */
function textOf(value: unknown): string {
  if (typeof value === 'string') return value;
  if (Array.isArray(value)) return value.map(textOf).join('');
  if (typeof value !== 'object' || value === null) return '';
  const { children, blocks, items, head, rows, text } = value as Record<string, unknown>;
  return [children, blocks, items, head, rows, text].map(textOf).join('');
}

/** The same for a list that was read in parts, and for one that was read at once. */
const outline = (blocks: readonly Block[]): unknown =>
  JSON.parse(JSON.stringify(blocks).replaceAll('"tight"', '"paragraph"'));

describe('a text that arrives in parts', () => {
  const word = fc.constantFrom('ape', '**bee**', '`cat`', '[dog](https://d.example/)', 'eel, fox', '*gnu*', '$h_1$');
  const line = fc.array(word, { minLength: 1, maxLength: 6 }).map((words) => words.join(' '));
  const block = fc.oneof(
    line,
    line.map((text) => `## ${text}`),
    fc
      .array(line, { minLength: 1, maxLength: 8 })
      .map((items) => items.map((item) => `- ${item}\n  - ${item}`).join('\n')),
    fc
      .array(line, { minLength: 1, maxLength: 8 })
      .map((items) => items.map((item, at) => `${at + 1}. ${item}`).join('\n')),
    fc
      .array(line, { minLength: 1, maxLength: 8 })
      .map((rows) => `| a | b |\n|---|--:|\n${rows.map((row) => `| ${row} | x |`).join('\n')}`),
    line.map((text) => `> ${text}\n> more`),
    line.map((text) => `\`\`\`js\n${text}\n\n- no list\n\`\`\``),
  );

  it('contract 10 §3: is read as the whole of it', () => {
    fc.assert(
      fc.property(
        fc.array(block, { maxLength: 6 }),
        fc.array(fc.integer({ min: 1, max: 40 }), { maxLength: 40 }),
        (blocks, sizes) => {
          const text = blocks.join('\n\n');
          const parts: string[] = [];
          let at = 0;
          for (const size of sizes) {
            parts.push(text.slice(at, at + size));
            at += size;
          }
          parts.push(text.slice(at));
          expect(outline(readParts(parts))).toEqual(outline(read(text)));
        },
      ),
      { numRuns: runs(40) },
    );
  });

  it.each([
    [['1. ape\n\n1', '. bee\n\n2. cat']],
    [['1. ape\n2. bee\n\n3', '. cat']],
    [['1. ape\n\n', '20', '26', ' was a year']],
    [['- ape\n\n7', '. bee']],
    [['- ape\n\n  1', '. bee\n  2', '. cat']],
    [['1. ape\n\n12', '\n\n3. bee']],
  ])('reads a list whose next number arrives before its dot: %j', (parts) => {
    for (let count = 1; count <= parts.length; count++)
      expect(outline(readParts(parts.slice(0, count)))).toEqual(outline(read(parts.slice(0, count).join(''))));
  });

  it('loses no letter, whatever it is made of', () => {
    const part = fc.constantFrom(
      'a',
      'b c',
      '\n',
      '\n\n',
      '- ',
      '1. ',
      '> ',
      '# ',
      '**',
      '_',
      '`',
      '```',
      '~~',
      '  ',
      '    ',
      '---',
      '<',
      '>',
      '$',
      '\\',
      '\r\n',
      '&',
      'é',
      '😀',
    );
    fc.assert(
      fc.property(fc.array(part, { maxLength: 60 }), (parts) => {
        const letters = (text: string) => text.replace(/[^a-zé😀]/gu, '');
        // The words behind a fence name a language.
        const text = parts.join('').replace(/(```+|~~~+)[^\n]*/g, '$1');
        expect(letters(textOf(readParts(parts.join('') === text ? parts : [text])))).toBe(letters(text));
      }),
      { numRuns: runs(100) },
    );
  });

  it('issue 25: reads again no block that is complete', () => {
    const markdown = createMarkdown();
    let text = '';
    const seen = new Map<number, Block>();
    let longest = 0;
    for (let at = 0; at < 400; at++) {
      text += at % 4 === 0 ? '\n\nA paragraph' : `\n- item ${at} with **words**`;
      markdown.update(text, false);
      while (markdown.step());
      longest = Math.max(longest, markdown.tailLength);
      const { blocks } = markdown;
      for (const [index, found] of blocks.slice(0, -2).entries()) expect(seen.get(index) ?? found).toBe(found);
      for (const [index, found] of blocks.slice(0, -2).entries()) seen.set(index, found);
    }
    expect(seen.size).toBeGreaterThan(100);
    expect(longest).toBeLessThan(100);
  });
});

it('contract 10 §3: 200 hostile texts become blocks of the known kinds, in bounded steps', () => {
  const hostile = [...HARMFUL_MARKDOWN, ...COSTLY_MARKDOWN];
  expect(hostile.length).toBeGreaterThanOrEqual(200);
  const kinds = new Set<unknown>();
  const visit = (value: unknown): void => {
    if (Array.isArray(value)) {
      for (const one of value) visit(one);
      return;
    }
    if (typeof value !== 'object' || value === null) return;
    if ('kind' in value) kinds.add(value.kind);
    if ('href' in value) expect(safeAddress(String(value.href))).toBe(value.href);
    for (const one of Object.values(value)) visit(one);
  };
  for (const text of hostile) {
    const markdown = createMarkdown();
    markdown.update(text.slice(0, 8000), true);
    let steps = 1;
    while (markdown.step()) steps++;
    expect(steps).toBeLessThan(4000);
    visit(markdown.blocks);
  }
  const known = [
    'break',
    'code',
    'del',
    'em',
    'file',
    'heading',
    'link',
    'list',
    'paragraph',
    'plain',
    'quote',
    'rule',
    'strong',
    'table',
    'tight',
  ];
  expect([...kinds].toSorted().filter((kind) => !known.includes(String(kind)))).toEqual([]);
});
