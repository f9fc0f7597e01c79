import { expect, it } from 'vitest';
import { concatBytes, utf8ToBytes } from '../../../lib/kit/bytes.ts';
import { type FormBody, formData } from '../../../lib/web/form-data.ts';

async function* chunked(...chunks: string[]): AsyncGenerator<Uint8Array> {
  for (const chunk of chunks) yield utf8ToBytes(chunk);
}

async function bytesOf({ body }: FormBody): Promise<Uint8Array<ArrayBuffer>> {
  const chunks: Uint8Array[] = [];
  for await (const chunk of body) chunks.push(chunk);
  return concatBytes(...chunks) as Uint8Array<ArrayBuffer>;
}

const parsed = async (form: FormBody): Promise<FormData> =>
  new Response(await bytesOf(form), { headers: { 'content-type': form.contentType } }).formData();

const file = { name: 'file', filename: 'voice.wav', contentType: 'audio/wav' };

it('a standard parser reads fields and file back, and the length is exact', async () => {
  const fields = [
    ['model', 'whisper-1'],
    ['language', 'dé\r\n--x'],
    ['tag', 'a'],
    ['tag', ''],
  ] as const;
  const build = () => formData(fields, { ...file, size: 5, content: chunked('ab', '', 'cé') });
  expect((await bytesOf(build())).byteLength).toBe(build().length);
  const form = await parsed(build());
  expect([form.get('model'), form.get('language'), form.getAll('tag')]).toEqual(['whisper-1', 'dé\r\n--x', ['a', '']]);
  const sent = form.get('file') as File;
  expect([sent.name, sent.type, await sent.text()]).toEqual(['voice.wav', 'audio/wav', 'abcé']);
});

it('names cannot break out of their header', async () => {
  const form = await parsed(
    formData([['a"; filename="x', 'v']], { ...file, filename: 'ü"\r\nx: y.wav', size: 1, content: utf8ToBytes('z') }),
  );
  expect([...form.keys()]).toEqual(['a"; filename="x', 'file']);
  expect((form.get('file') as File).name).toContain('x: y.wav');
});

it.each([
  ['shorter', ['abc']],
  ['longer', ['abc', 'def']],
])('fails when the file is %s than announced', async (_name, chunks) => {
  const form = formData([], { ...file, size: 5, content: chunked(...chunks) });
  await expect(bytesOf(form)).rejects.toThrow('5 bytes');
});
