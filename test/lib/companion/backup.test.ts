import * as fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { type Backup, MAX_BACKUP, openBackup, readSealed, sealBackup } from '../../../lib/companion/backup.ts';
import { base64, fromBase64 } from '../../../lib/kit/bytes.ts';
import { runs } from '../../support/runs.ts';

const BACKUP: Backup = {
  settings: { blocklist: ['org.example.app'], theme: 'dark' },
  pairing: { session_token: 'secret' },
  deviceId: '00000000-0000-4000-8000-000000000000',
};

describe('backups behind a passphrase (specification 2.1)', () => {
  it('open with their passphrase, show nothing without it, and differ each time', async () => {
    const [one, two] = await Promise.all([sealBackup(BACKUP, 'correct horse'), sealBackup(BACKUP, 'correct horse')]);
    expect(await openBackup(one, 'correct horse')).toEqual(BACKUP);
    expect(one).not.toEqual(two);
    expect(one).not.toMatch(/secret|blocklist|org\.example/);
    await expect(openBackup(one, 'correct horses')).rejects.toMatchObject({ kind: 'forbidden' });
  });

  it('open with the same passphrase from another keyboard', async () => {
    const sealed = await sealBackup(BACKUP, 'corréct horse');
    expect(await openBackup(sealed, 'corréct horse'.normalize('NFD'))).toEqual(BACKUP);
  });

  it('are refused after any change of a byte', { timeout: 60_000 }, async () => {
    const file = JSON.parse(await sealBackup(BACKUP, 'correct horse'));
    await fc.assert(
      fc.asyncProperty(
        fc.constantFrom('salt', 'iv', 'data'),
        fc.nat(),
        fc.integer({ min: 1, max: 255 }),
        async (part, at, flip) => {
          const bytes = Uint8Array.from(fromBase64(file[part]) as Uint8Array);
          const index = at % bytes.length;
          bytes[index] = (bytes[index] as number) ^ flip;
          const changed = JSON.stringify({ ...file, [part]: base64(bytes) });
          await expect(openBackup(changed, 'correct horse')).rejects.toMatchObject({ kind: 'forbidden' });
        },
      ),
      // Each opening costs the 600,000 rounds that it costs an attacker.
      { numRuns: runs(8) },
    );
  });

  it.each([
    ['', 'unsupported-media'],
    ['[]', 'unsupported-media'],
    ['{"svc_backup":1}', 'unsupported-media'],
    ['{"svc_backup":2,"salt":"AAAA","iv":"AAAA","data":"AAAA"}', 'unsupported-media'],
    ['{"svc_backup":1,"salt":"AAAA","iv":"AAAA","data":"AAAA"}', 'unsupported-media'],
    [`{"svc_backup":1,"data":"${'A'.repeat(MAX_BACKUP)}"}`, 'too-large'],
  ])('refuse another file before anybody types: %.60s', (text, kind) => {
    expect(() => readSealed(text)).toThrow(expect.objectContaining({ kind }));
  });

  it('take nothing for granted that was sealed by somebody else', async () => {
    const odd = { settings: ['x'], pairing: 'x', deviceId: 5 } as unknown as Backup;
    expect(await openBackup(await sealBackup(odd, 'p'), 'p')).toEqual({ settings: {}, pairing: null, deviceId: null });
  });
});
