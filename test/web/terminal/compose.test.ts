import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { type ComposerOptions, createComposer, PADDING } from '../../../handlers/web/app/terminal/compose.ts';

/** A text field as a browser drives it, and the line that a shell would show. */
function createField(options?: ComposerOptions) {
  const composer = createComposer(options);
  let value = PADDING;
  let line = '';
  const sent: string[] = [];
  const pasted: string[] = [];

  function take({ text, paste, reset }: ReturnType<typeof composer.input>): void {
    if (text !== '') sent.push(text);
    for (const character of text) {
      line = character === '\x7f' ? line.replace(/[^\p{M}\u200d][\p{M}\u200d]*$/u, '') : line + character;
    }
    if (paste !== undefined) pasted.push(paste);
    if (reset) value = PADDING;
  }

  return {
    composer,
    sent,
    pasted,
    get line() {
      return line;
    },
    get value() {
      return value;
    },
    /** The field gets another text, outside the padding. */
    set(text: string, inputType = 'insertText'): void {
      composer.before(value);
      value = PADDING + text;
      take(composer.input(value, inputType));
    },
    setWhole(whole: string, inputType = 'insertText'): void {
      composer.before(value);
      value = whole;
      take(composer.input(value, inputType));
    },
    compose(text: string): void {
      this.set(text, 'insertCompositionText');
    },
    end(): void {
      take(composer.end(value));
    },
    /** Somebody else changed the field. */
    disturb(text: string): void {
      value = text;
    },
  };
}

describe('typing without key codes (contract 09 §1)', () => {
  test('letters that a keyboard inserts arrive as they come', () => {
    const field = createField();
    field.set('l');
    field.set('ls');
    expect(field.sent).toEqual(['l', 's']);
  });

  test('a word that is composed arrives letter by letter, and once', () => {
    const field = createField();
    field.composer.start('Unidentified');
    for (const text of ['h', 'he', 'hel', 'hell', 'hello']) field.compose(text);
    field.end();
    expect(field.sent).toEqual(['h', 'e', 'l', 'l', 'o']);
  });

  test('an autocorrection is deletions and the new text', () => {
    const field = createField();
    field.composer.start();
    for (const text of ['t', 'te', 'teh']) field.compose(text);
    field.compose('the');
    field.end();
    field.set('the ');
    expect(field.sent.slice(3)).toEqual(['\x7f\x7fhe', ' ']);
    expect(field.line).toBe('the ');
  });

  test('a replacement without a composition, as on an iPhone, is the same', () => {
    const field = createField();
    field.set('i dont');
    field.set("i don't", 'insertReplacementText');
    expect(field.sent).toEqual(['i dont', "\x7f't"]);
  });

  test('a suggestion replaces the word that was begun', () => {
    const field = createField();
    field.composer.start();
    field.compose('git sta');
    field.end();
    field.composer.start();
    field.compose('git status');
    field.end();
    field.set('git status ');
    expect(field.sent).toEqual(['git sta', 'tus', ' ']);
  });

  test('dictation revises what it has heard', () => {
    const field = createField();
    for (const text of ['list', 'list the', 'list these files', 'list the files in']) field.set(text);
    expect(field.line).toBe('list the files in');
  });

  test('Japanese is typed when it has been converted, and shown meanwhile', () => {
    const field = createField();
    field.composer.start('Unidentified');
    for (const text of ['に', 'にほ', 'にほん', '日本']) field.compose(text);
    expect(field.sent).toEqual([]);
    expect(field.composer.preview).toBe('日本');
    field.end();
    expect(field.sent).toEqual(['日本']);
    expect(field.composer.preview).toBe('');
  });

  test.each(['Process', 'Dead'])('with a real keyboard (key %s), composed letters wait for the end', (key) => {
    const field = createField();
    field.composer.start(key);
    for (const text of ['n', 'ni', 'に']) field.compose(text);
    field.end();
    expect(field.sent).toEqual(['に']);
  });

  test('so they do in a browser of a language that converts', () => {
    const field = createField({ converts: true });
    field.composer.start();
    for (const text of ['k', 'か', '蚊']) field.compose(text);
    field.end();
    expect(field.sent).toEqual(['蚊']);
  });

  test('letters that turn out to be the beginning of a conversion are taken back', () => {
    const field = createField();
    field.composer.start();
    for (const text of ['k', 'か']) field.compose(text);
    field.end();
    expect(field.sent).toEqual(['k', '\x7fか']);
  });

  test('a composition that is cancelled leaves nothing', () => {
    const field = createField({ converts: true });
    field.set('a');
    field.composer.start();
    field.compose('aか');
    field.set('a');
    field.end();
    expect(field.sent).toEqual(['a']);
  });

  test('Safari replaces the composed text in two steps', () => {
    const field = createField({ converts: true });
    field.composer.start();
    field.compose('にほん');
    field.set('', 'deleteCompositionText');
    field.set('日本', 'insertFromComposition');
    field.end();
    expect(field.sent).toEqual(['日本']);
  });

  test('a line break is Return, and the field begins anew', () => {
    const field = createField();
    field.set('ls');
    field.set('ls\n', 'insertLineBreak');
    expect(field.sent).toEqual(['ls', '\r']);
    expect(field.value).toBe(PADDING);
    field.set('x');
    expect(field.sent[2]).toBe('x');
  });

  test('several lines are a paste', () => {
    const field = createField();
    field.set('one\ntwo\n', 'insertFromPaste');
    expect(field.sent).toEqual([]);
    expect(field.pasted).toEqual(['one\ntwo\n']);
  });

  test('Backspace works although nothing is in the field, again and again', () => {
    const field = createField();
    for (let time = 0; time < 20; time++) field.setWhole(field.value.slice(0, -1), 'deleteContentBackward');
    expect(field.sent).toEqual(Array(20).fill('\x7f'));
    expect(field.value).toBe(PADDING);
  });

  test('a deleted word is as many deletions as it has characters', () => {
    const field = createField();
    field.set('an 🎈e\u0301');
    field.set('an ', 'deleteWordBackward');
    expect(field.sent[1]).toBe('\x7f\x7f');
    field.setWhole('', 'deleteSoftLineBackward');
    expect(field.sent[2]).toBe('\x7f\x7f\x7f');
  });

  test('an accent that is added to a letter replaces it', () => {
    const field = createField();
    field.set('e');
    field.set('e\u0301');
    expect(field.sent).toEqual(['e', '\x7fe\u0301']);
    expect(field.line).toBe('e\u0301');
  });

  test('what others put into the field is not typed', () => {
    const field = createField();
    field.set('a');
    field.disturb('');
    field.composer.before('');
    field.setWhole('b');
    expect(field.sent).toEqual(['a', 'b']);
  });

  test('a key that moves the cursor begins anew, and gives the composed text first', () => {
    const field = createField({ converts: true });
    field.composer.start();
    field.compose('か');
    expect(field.composer.reset()).toBe('か');
    expect(field.composer.reset()).toBe('');
  });

  test('the field does not grow without end', () => {
    const field = createField();
    let text = '';
    for (let length = 0; length < 3_000; length++) {
      text = field.value.slice(PADDING.length) + (length % 10);
      field.set(text);
      expect(field.value.length).toBeLessThanOrEqual(400);
    }
    expect(field.line).toHaveLength(3_000);
  });

  test('whatever a keyboard does, the line ends as the text of the field', () => {
    const word = fc.string({
      unit: fc.constantFrom('a', 'b', ' ', 'é', 'e\u0301', '漢', 'か', '🎈', 'n'),
      maxLength: 8,
    });
    const step = fc.record({
      /** How much of the text stays, from its beginning. */
      keeps: fc.double({ min: 0, max: 1, noNaN: true }),
      adds: word,
      composes: fc.constantFrom('no', 'starts', 'goes on', 'ends'),
    });
    fc.assert(
      fc.property(fc.array(step, { maxLength: 40 }), fc.boolean(), (steps, converts) => {
        const field = createField({ converts });
        let text = '';
        for (const { keeps, adds, composes } of steps) {
          if (composes === 'starts') field.composer.start();
          text = [...text].slice(0, Math.floor(text.length * keeps)).join('') + adds;
          field.set(text, composes === 'no' ? 'insertText' : 'insertCompositionText');
          if (composes === 'ends') field.end();
        }
        field.end();
        expect(field.line).toBe(text);
      }),
    );
  });
});
