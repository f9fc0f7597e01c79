import { expect, it } from 'vitest';
import {
  type HistoryRow,
  type Item,
  itemOfCopy,
  itemOfRow,
  merged,
  threadsOf,
} from '../../handlers/web/app/inbox/items.ts';

const row = (more: Partial<HistoryRow> = {}): HistoryRow => ({
  seq: 1,
  kind: 'message',
  message_id: 'm1',
  chat_id: null,
  title: 'Title',
  text: 'Text?',
  reply_to: null,
  ts: 5,
  state: 'queued',
  answers: ['Yes', 'No'],
  ...more,
});
const ofEdge = (more: Partial<HistoryRow> = {}): Item => ({ ...itemOfRow(row(more)), seq: undefined });
const sealed = { by: 'x', content: '', keys: {} };

it('contract 12 §4: shows nothing of what the edge has beside a seal that cannot be opened', () => {
  const copy = { message_id: 'm1', text: 'Forged', title: 'Forged', metadata: { answers: ['Forged'] }, sealed };
  for (const item of [ofEdge({ sealed }), itemOfCopy(copy)]) {
    expect(item).toMatchObject({ id: 'm1', title: null, answers: [], seal: 'unopened' });
    expect(item?.text).toMatch(/^This is sealed, and this browser cannot open it/);
  }
  expect(ofEdge({ sealed: true })).toMatchObject({ text: 'Text?', title: 'Title', answers: ['Yes', 'No'] });
  expect(ofEdge({ sealed: true }).seal).toBe('opened');
});

it('keeps what was opened before, and takes what home has once it is back', () => {
  const closed = ofEdge({ sealed, state: 'answered' });
  expect(merged(ofEdge({ sealed: true }), closed)).toMatchObject({ text: 'Text?', answers: ['Yes', 'No'] });
  expect(merged(ofEdge({ sealed: true }), closed).state).toBe('answered');
  // Another message under the same id is another one.
  expect(merged(ofEdge({ sealed: true }), { ...closed, ts: 6 }).seal).toBe('unopened');
  const back = merged(closed, itemOfRow(row()));
  expect([back.text, back.seal, back.seq]).toEqual(['Text?', undefined, 1]);
});

it('marks what came without a seal for good, but not what home has given in the same words', () => {
  const plain = ofEdge({ sealed: false });
  expect(plain.seal).toBe('none');
  expect(merged(plain, itemOfRow(row())).seal).toBe('none');
  const ofHome = itemOfRow(row());
  expect(merged(ofHome, { ...plain, answers: ['Forged'] })).toMatchObject({ answers: ['Yes', 'No'], seal: undefined });
  expect(merged(ofHome, { ...plain, text: 'Forged' })).toMatchObject({ text: 'Forged', seal: 'none' });
  expect(itemOfCopy({ message_id: 'm1', text: 'Text?', metadata: { sealed: false } })?.seal).toBe('none');
  expect(itemOfCopy({ message_id: 'm1', text: 'Text?', metadata: { sealed: true } })?.seal).toBeUndefined();
});

it('takes what is sealed in place of what the edge gave before it under the same id', () => {
  const forged = ofEdge({ sealed: false, text: 'Forged' });
  expect(merged(forged, ofEdge({ sealed: true }))).toMatchObject({ text: 'Text?', seal: 'opened' });
  expect(merged(forged, ofEdge({ sealed })).seal).toBe('unopened');
});

it('has a time that can be shown, whatever the relay or its edge says', () => {
  for (const ts of [9e15, -9e15, 1e300, undefined, 'now'] as number[]) {
    const items = [itemOfRow(row({ ts })), itemOfCopy({ message_id: 'm1', text: 'Text', sent_at: ts })];
    for (const item of items) expect(new Date(item?.ts ?? Number.NaN).toISOString()).toMatch(/^20/);
  }
  expect(itemOfRow(row({ ts: 7 })).ts).toBe(7);
});

it('gives a thread no new title by a message without a seal', () => {
  const items = [ofEdge({ sealed: true }), ofEdge({ message_id: 'm2', sealed: false, title: 'Forged' })];
  expect(threadsOf(items, new Map()).map(({ title }) => title)).toEqual(['Title']);
});
