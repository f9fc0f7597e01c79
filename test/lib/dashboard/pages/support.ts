import fc from 'fast-check';
import type { JsonObject } from '../../../../lib/kit/json.ts';

/** A page with one text. */
export const documentOf = (content: unknown = { type: 'text', id: 'hello', text: { text: 'Hello' } }): JsonObject => ({
  schemaVersion: 1,
  pages: [{ id: 'home', title: { text: 'Home' }, content }],
});

export const draftOf = (title = 'Hello', document: unknown = documentOf()): JsonObject => ({ title, document });

const LEAVES = ['text', 'badge', 'button', 'text_input', 'toggle', 'progress', 'image', 'divider', 'spacer'] as const;

type Shape = { type: string; children?: Shape[]; child?: Shape };

const shape: fc.Arbitrary<Shape> = fc.letrec<{ element: Shape }>((tie) => ({
  element: fc.oneof(
    { maxDepth: 8, withCrossShrink: true },
    fc.record({ type: fc.constantFrom(...LEAVES) }),
    fc.record({ type: fc.constant('group'), children: fc.array(tie('element'), { maxLength: 4 }) }),
    fc.record({ type: fc.constant('card'), child: tie('element') }),
  ),
})).element;

/** Every element gets an id of its own. */
function numbered({ type, children, child }: Shape, next: () => number): JsonObject {
  return {
    type,
    id: `e${next()}`,
    ...(children && { children: children.map((each) => numbered(each, next)) }),
    ...(child && { child: numbered(child, next) }),
  };
}

/** Documents that keep every rule. */
export const validDocument: fc.Arbitrary<JsonObject> = fc
  .array(fc.tuple(shape, fc.string({ maxLength: 20 })), { minLength: 1, maxLength: 4 })
  .map((pages) => {
    let count = 0;
    const next = () => ++count;
    return {
      schemaVersion: 1,
      pages: pages.map(([content, title], at) => ({
        id: `page-${at}`,
        title: { text: `t${title}` },
        content: numbered(content, next),
      })),
    };
  });
