import { readdir } from 'node:fs/promises';
import fc from 'fast-check';
import { expect, it } from 'vitest';
import { etagOf, profileClient } from '../support/profiles.ts';
import { describeMatrix } from '../support/relay.ts';

describeMatrix(
  'writing a profile (contract 07 §1.5)',
  (start) => {
    it('a reader sees a whole file while it is being replaced', async () => {
      const target = await start();
      const { put: write, get } = await profileClient(target);
      const versions = ['a', 'b'].map((letter) => letter.repeat(150_000));
      await write('default/soul', versions[0]);
      let writing = true;
      const writer = (async () => {
        for (let round = 0; round < 20; round++)
          expect((await write('default/soul', versions[round % 2])).status).toBe(200);
        writing = false;
      })();
      while (writing) {
        const { status, body } = await get('default/soul');
        expect(status).toBe(200);
        expect(versions).toContain(body.content);
        expect(body.etag).toBe(etagOf(body.content));
      }
      await writer;
    });

    it('any text is read back as written', async () => {
      const target = await start();
      const { put: write, get } = await profileClient(target);
      const text = fc.oneof(
        fc.string({ unit: 'binary', maxLength: 300 }),
        fc.constant('\ufeff'),
        fc.constant('\r\n\0'),
      );
      await fc.assert(
        fc.asyncProperty(text, async (content) => {
          const { status, body } = await write('default/soul', content);
          expect(status).toBe(200);
          expect(body.bytes_written).toBe(Buffer.byteLength(content));
          expect((await get('default/soul')).body).toMatchObject({ content, etag: body.etag });
        }),
        { numRuns: 20 },
      );
    });

    it('any file name is refused or writes below memories/, and nowhere else', async () => {
      const target = await start();
      const { call } = await profileClient(target);
      const piece = fc.constantFrom(
        '..',
        '.',
        '/',
        '\\',
        'a',
        'soul',
        'SOUL',
        '.md',
        '%',
        '\0',
        '\n',
        ' ',
        'ü',
        '-',
        '~',
      );
      const name = fc.oneof(
        fc.array(piece, { minLength: 1, maxLength: 6 }).map((pieces) => pieces.join('')),
        fc.stringMatching(/^[A-Za-z0-9._-]{1,12}\.md$/),
        fc.string({ unit: 'grapheme', minLength: 1, maxLength: 20 }),
      );
      const before = (await readdir(target.agentHome)).filter((entry) => entry !== 'memories');
      await fc.assert(
        fc.asyncProperty(name, async (filename) => {
          const path = `/api/profiles/default/memory/${encodeURIComponent(filename)}`;
          const { status, body } = await call(path, { method: 'PUT', body: '{"content":"x"}' });
          if (status === 200) {
            expect(filename).toMatch(/^[A-Za-z0-9_-][A-Za-z0-9._-]*\.md$/);
            expect(filename.toLowerCase()).not.toBe('soul.md');
            expect(await readdir(`${target.agentHome}/memories`)).toContain(filename);
            // A name of dots alone is resolved before it becomes a path segment.
          } else expect([400, 404, 405]).toContain(status);
          if (status === 400) expect(body.error).toBe('invalid_filename');
        }),
        { numRuns: 100 },
      );
      expect((await readdir(target.agentHome)).filter((entry) => entry !== 'memories')).toEqual(before);
    });
  },
  ['node'],
);
