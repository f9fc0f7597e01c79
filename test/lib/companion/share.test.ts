import { describe, expect, it } from 'vitest';
import type { MediaSource, UploadFile } from '../../../lib/companion/types.ts';
import { createTestPhone } from './support.ts';

const file = (name: string): UploadFile => ({ name, type: 'image/png', bytes: new Uint8Array(4) });

/** A phone with a recorded fetch. */
function phoneThatFetches(fetchMedia?: (source: MediaSource) => Promise<UploadFile>) {
  const fetched: MediaSource[] = [];
  const phone = createTestPhone(
    {},
    {
      autoReturnMs: null,
      fetchMedia(source) {
        fetched.push(source);
        return fetchMedia?.(source) ?? Promise.resolve(file('token' in source ? source.token : source.path));
      },
    },
  );
  return { ...phone, fetched };
}

describe('attachments (contract 03 §5)', () => {
  it.each<[Record<string, unknown>, MediaSource[]]>([
    [{ path: '/a/b.png' }, [{ path: '/a/b.png' }]],
    [{ paths: ['/a', '/b'] }, [{ path: '/a' }, { path: '/b' }]],
    [{ media: 'MEDIA:svc-relay://tok' }, [{ token: 'tok' }]],
    [{ media: 'svc-relay://tok' }, [{ token: 'tok' }]],
    [{ media: 'MEDIA:tok' }, [{ token: 'tok' }]],
    [{ media: 'MEDIA:/abs/path' }, [{ path: '/abs/path' }]],
    [{ media_token: 'tok' }, [{ token: 'tok' }]],
    [{ media_tokens: ['a', 'b'] }, [{ token: 'a' }, { token: 'b' }]],
    [
      { attachments: [{ token: 'a', content_type: 'text/plain', file_name: 'a.txt' }, { path: '/b' }, { media: 'c' }] },
      [{ token: 'a', contentType: 'text/plain', fileName: 'a.txt' }, { path: '/b' }, { token: 'c' }],
    ],
  ])('%j', async (body, sources) => {
    const phone = phoneThatFetches();
    const answer = await phone.ok('POST', '/share_media', body);
    expect(answer).toMatchObject({ status: 'share_opened', attachments: sources.length });
    expect(phone.fetched).toMatchObject(sources);
  });

  it.each([
    [{ path: 'relative' }],
    [{ path: ['/a'] }],
    [{ paths: '/a' }],
    [{ media: '/abs/path' }],
    [{ media_token: 'a b' }],
    [{ media_token: '../x' }],
    [{ media_tokens: [1] }],
    [{ attachments: ['tok'] }],
    [{ attachments: [{}] }],
    [{ attachments: [{ token: 'a', file_name: 5 }] }],
    [{ paths: Array.from({ length: 21 }, () => '/a') }],
    [{ text: 5 }],
    [{ text: 'a', package: {} }],
    [{}],
  ])('%j is refused before the person is asked', async (body) => {
    const phone = phoneThatFetches();
    expect(await phone.call('POST', '/share_media', body)).toMatchObject({
      status: 400,
      result: { status: 'failed', reason: 'invalid_schema', error: expect.any(String) },
    });
    expect([phone.person.asked, phone.fetched, phone.system.shares]).toEqual([[], [], []]);
  });

  it.each([
    ['a name', { to: 'Ada' }],
    ['no one', {}],
  ])('/send_mms to %s is refused before the person is asked', async (_, body) => {
    const phone = phoneThatFetches();
    const answer = await phone.call('POST', '/send_mms', { ...body, body: 'x' });
    expect(answer).toMatchObject({ status: 400, result: { reason: 'invalid_schema' } });
    expect(phone.person.asked).toEqual([]);
  });

  it('media that cannot be fetched answers media_fetch_failed without the cause', async () => {
    const broken = phoneThatFetches(() => Promise.reject(new Error('token tok is secret')));
    const answer = await broken.call('POST', '/share_media', { media_token: 'tok' });
    expect(answer).toMatchObject({ status: 400, result: { status: 'failed', reason: 'media_fetch_failed' } });
    expect(JSON.stringify([answer, broken.log.lines])).not.toContain('secret');
    const without = createTestPhone();
    const refused = await without.call('POST', '/share_media', { media_token: 'tok' });
    expect(refused.result.reason).toBe('media_fetch_failed');
  });

  it('a fetch is given up after 15 s', async () => {
    const phone = phoneThatFetches(() => new Promise(() => {}));
    const answer = phone.call('POST', '/share_media', { media_token: 'tok' });
    await phone.clock.advanceAsync(15_000);
    expect((await answer).result.reason).toBe('media_fetch_failed');
    expect(phone.clock.pending).toBe(0);
  });

  it('media that arrives after the caller’s timeout is not shared', async () => {
    const phone = phoneThatFetches(async () => {
      phone.clock.advance(29_001);
      return file('late');
    });
    const { status, result } = await phone.call('POST', '/share_media', { media_token: 'tok' });
    expect([status, result.reason]).toEqual([403, 'confirmation_denied_or_timeout']);
    expect(phone.system.shares).toEqual([]);
  });

  it('a missing app answers activity_not_found', async () => {
    const answer = await createTestPhone().call('POST', '/share_media', { text: 'x', package: 'org.nobody' });
    expect(answer).toMatchObject({ status: 400, result: { status: 'failed', reason: 'activity_not_found' } });
  });
});

describe('/send_sms (contract 03 §5)', () => {
  const SMS = { to: '+15550100', body: 'hello' };

  it.each([
    [{}, 'invalid_schema'],
    [{ to: '+1555' }, 'invalid_schema'],
    [{ to: 5, body: 'x' }, 'invalid_schema'],
    [{ to: '+1555', body: '' }, 'invalid_schema'],
    [{ to: 'Ada', body: 'x' }, 'invalid_recipient'],
    [{ to: '+1555*', body: 'x' }, 'invalid_recipient'],
  ])('%j answers %s', async (body, reason) => {
    const phone = createTestPhone();
    const answer = await phone.call('POST', '/send_sms', body);
    expect(answer).toMatchObject({ status: 400, result: { status: 'failed', reason } });
    if (reason === 'invalid_schema') expect(answer.result).toHaveProperty('expected_schema');
    expect(phone.person.asked).toEqual([]);
  });

  it('reports a carrier that refuses or stays silent for 15 s', async () => {
    const phone = createTestPhone({}, { autoReturnMs: null });
    phone.system.carrier = 'RESULT_ERROR_NO_SERVICE';
    expect(await phone.call('POST', '/send_sms', SMS)).toMatchObject({
      status: 400,
      result: { status: 'failed', android_result: 'RESULT_ERROR_NO_SERVICE', parts: 1 },
    });
    phone.system.carrier = 'silent';
    const answer = phone.call('POST', '/send_sms', { ...SMS, body: 'ü'.repeat(161) });
    await phone.clock.advanceAsync(15_000);
    expect(await answer).toMatchObject({
      status: 400,
      result: { status: 'timeout', reason: 'carrier_ack_timeout', android_result: 'timeout', parts: 2 },
    });
    expect(phone.clock.pending).toBe(0);
  });

  it.each([
    ['/send_sms', SMS, 'SEND_SMS', { status: 'blocked', reason: 'permission_denied' }],
    ['/search_contacts', { query: 'ada' }, 'READ_CONTACTS', {}],
    ['/location', {}, 'ACCESS_FINE_LOCATION', {}],
  ])('%s without its permission', async (path, body, name, more) => {
    const phone = createTestPhone();
    const permission = `android.permission.${name}`;
    phone.system.denied.add(permission);
    expect(await phone.call(path === '/location' ? 'GET' : 'POST', path, body)).toMatchObject({
      status: 400,
      result: {
        code: 'permission_denied',
        error_code: 'permission_denied',
        permission,
        required_permission: permission,
        ...more,
      },
    });
  });

  it('reports that a call only opened the dialer', async () => {
    const phone = createTestPhone();
    phone.system.denied.add('android.permission.CALL_PHONE');
    const answer = await phone.ok('POST', '/call', { number: '*#06#' });
    expect(answer).toMatchObject({ number: '*#06#', mode: 'dialer_opened', note: expect.any(String) });
    expect(phone.system.calls).toEqual([]);
  });

  it('warns of an old location, and answers 400 without a fix', async () => {
    const phone = createTestPhone();
    phone.clock.advance(5 * 60_000);
    expect(await phone.ok('GET', '/location')).toMatchObject({ staleness_ms: 360_000, warning: expect.any(String) });
    phone.system.location = null;
    expect((await phone.call('GET', '/location')).status).toBe(400);
  });

  it('sorts the phones of a contact: mobile, main, home, work, other; watch and fax last', async () => {
    const { contacts } = await createTestPhone().ok('POST', '/search_contacts', { query: 'a', limit: '100' });
    const found = contacts as { name: string; phones: { type: string; label: string }[] }[];
    expect(found.find(({ name }) => name.startsWith('Ada'))?.phones.map(({ label }) => label)).toEqual([
      'mobile',
      'work',
      'Watch',
    ]);
    expect(found.find(({ name }) => name.startsWith('Kath'))?.phones.map(({ label }) => label)).toEqual([
      'home',
      'Work fax',
    ]);
  });
});
