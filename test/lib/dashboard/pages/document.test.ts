import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { checkDocument } from '../../../../lib/dashboard/pages/document.ts';
import type { JsonObject } from '../../../../lib/kit/json.ts';
import { documentOf, validDocument } from './support.ts';

const accepts = (document: unknown) => expect(checkDocument(document)).toBe(document);
const refuses = (document: unknown, reason: RegExp) => expect(() => checkDocument(document)).toThrow(reason);

const text = (id: string, more: JsonObject = {}) => ({ type: 'text', id, ...more });
const group = (id: string, children: unknown) => ({ type: 'group', id, children });
const nested = (levels: number): unknown =>
  levels === 1 ? text('leaf') : { type: 'card', id: `card${levels}`, child: nested(levels - 1) };

describe('documents of the page store (contract 07 §4.4)', () => {
  it('accepts every document that keeps the rules', () => {
    fc.assert(fc.property(validDocument, (document) => checkDocument(document) === document));
  });

  it('refuses any of them once one element breaks a rule, wherever it stands', () => {
    const broken = [
      (element: JsonObject) => Object.assign(element, { type: 'web_view' }),
      (element: JsonObject) => Object.assign(element, { id: '../x' }),
      (element: JsonObject) => Object.assign(element, { action: { steps: [{ request: { path: '/x' } }] } }),
      (element: JsonObject) => Object.assign(element, { imageUrl: 'javascript:alert(1)' }),
      (element: JsonObject) => Object.assign(element, { label: 'data:text/html,<script>' }),
    ];
    fc.assert(
      fc.property(validDocument, fc.nat(), fc.constantFrom(...broken), (document, at, breakIt) => {
        const elements = elementsOf(document);
        breakIt(elements[at % elements.length] as JsonObject);
        expect(() => checkDocument(document)).toThrow();
      }),
    );
  });

  it('never throws anything but a refusal, whatever JSON it gets', () => {
    fc.assert(
      fc.property(fc.jsonValue(), fc.jsonValue(), (content, extra) => {
        const document = { ...documentOf(content), extra };
        try {
          checkDocument(document);
        } catch (error) {
          expect(error).toMatchObject({ kind: 'invalid' });
        }
      }),
    );
  });

  it.each([
    ['no object', [], /must be an object/],
    ['no version', { pages: documentOf().pages }, /schemaVersion/],
    ['another version', { ...documentOf(), schemaVersion: 2 }, /schemaVersion/],
    ['two versions', { ...documentOf(), schema_version: 2 }, /schemaVersion/],
    ['a version as text', { ...documentOf(), schemaVersion: '1' }, /schemaVersion/],
    ['no page', { schemaVersion: 1, pages: [] }, /1 to 32 pages/],
    ['33 pages', { schemaVersion: 1, pages: Array(33).fill({}) }, /1 to 32 pages/],
    ['pages that are no array', { schemaVersion: 1, pages: {} }, /1 to 32 pages/],
    ['an unknown type of document', { ...documentOf(), type: 'html' }, /document.type/],
    ['a page without a title', { schemaVersion: 1, pages: [{ id: 'a', content: text('t') }] }, /page.title/],
    ['a title as text', { schemaVersion: 1, pages: [{ id: 'a', title: 'x', content: text('t') }] }, /page.title/],
    ['a page without content', { schemaVersion: 1, pages: [{ id: 'a', title: {} }] }, /element must be/],
    ['an unknown type of page', documentOfPage({ type: 'web' }), /page.type/],
    ['an element without id', documentOf({ type: 'text' }), /element.id/],
    ['an id with a slash', documentOf(text('a/b')), /element.id/],
    ['an id used twice', documentOf(group('g', [text('a'), text('a')])), /unique/],
    ['an unknown element', documentOf({ type: 'script', id: 'a' }), /element.type/],
    ['a group without children', documentOf({ type: 'group', id: 'g' }), /group.children/],
    ['101 children', documentOf(group('g', Array(101).fill(null))), /at most 100/],
    ['children of a text', documentOf(text('a', { children: [] })), /only a group/],
    ['a child of a text', documentOf(text('a', { child: text('b') })), /only a card/],
    ['17 levels', documentOf(nested(17)), /16 levels/],
    ['levels beyond any page', documentOf(deep(80)), /64 levels/],
    ['a number that JSON lacks', documentOf(text('a', { value: JSON.parse('1e999') })), /number/],
    ['a number with more digits than the document', documentOf(text('a', { value: -1e21 })), /number/],
  ])('refuses %s', (_name, document, reason) => refuses(document, reason));

  it('counts levels, elements and bytes exactly', () => {
    accepts(documentOf(nested(16)));
    const groups = (sizes: number[]) =>
      documentOf(
        group(
          'g',
          sizes.map((size, at) => group(`g${at}`, ids(size, at))),
        ),
      );
    accepts(groups([100, 100, 100, 100, 94]));
    refuses(groups([100, 100, 100, 100, 95]), /500 elements/);
    const filled = (length: number) => documentOf(text('a', { text: 'x'.repeat(length) }));
    const rest = 512 * 1024 - JSON.stringify(filled(0)).length;
    accepts(filled(rest));
    refuses(filled(rest + 1), /512 KiB/);
  });

  it('counts bytes, not characters', () => {
    const rest = 512 * 1024 - JSON.stringify(documentOf(text('a', { text: '' }))).length;
    refuses(documentOf(text('a', { text: 'é'.repeat(rest / 2 + 1) })), /512 KiB/);
  });

  it.each([
    { url: 'https://example.com/a?b=c#d' },
    { url: 'http://192.168.1.2:8080/' },
    { src: '/media/one.png' },
    { imageUrl: 'data:image/png;base64,iVBORw0KGgo=' },
    { icon: 'star' },
    { href: '?page=2' },
    { text: '<b>bold</b>' },
    { text: 'JavaScript: the good parts' },
    { text: 'data: 5 GB' },
    { action: { type: 'navigate', page: 'home' } },
    { request: 'not an action' },
  ])('accepts %j', (more) => accepts(documentOf(text('a', more))));

  it.each([
    { url: 'javascript:alert(1)' },
    { url: ' java\nscript:alert(1)' },
    { text: 'java\tscript:alert(1)' },
    { text: '\u0000 JaVaScRiPt:alert(1)' },
    { href: 'vbscript:x' },
    { source: 'file:///etc/passwd' },
    { url: 'intent://x#Intent;end' },
    { url: '//evil.example/x' },
    { url: '\\\\evil.example\\x' },
    { url: 'https://user:pass@example.com/' },
    { url: 'https://' },
    { url: '<img src=x onerror=alert(1)>' },
    { src: 'data:image/svg+xml;base64,PHN2Zz4=' },
    { src: 'data:text/html;base64,PHN2Zz4=' },
    { text: 'data:image/svg+xml,<svg/>' },
    { imageUrl: 'x"onerror="y' },
    { action: 'request' },
    { action: { request: {} } },
    { 'action.request': {} },
    { actions: [{ next: { request: {} } }] },
    { action: { type: 'action.request' } },
  ])('refuses %j', (more) => refuses(documentOf(text('a', more)), /URL|action\.request/));
});

function ids(size: number, at: number) {
  return Array.from({ length: size }, (_, index) => text(`t${at}-${index}`));
}

function documentOfPage(more: JsonObject): JsonObject {
  return { schemaVersion: 1, pages: [{ id: 'a', title: {}, content: text('t'), ...more }] };
}

const deep = (levels: number): unknown => (levels === 0 ? 1 : { a: deep(levels - 1) });

function elementsOf(document: JsonObject): JsonObject[] {
  const below = (element: JsonObject): JsonObject[] => [
    element,
    ...((element.children as JsonObject[]) ?? []).flatMap(below),
    ...(element.child ? below(element.child as JsonObject) : []),
  ];
  return (document.pages as JsonObject[]).flatMap(({ content }) => below(content as JsonObject));
}
