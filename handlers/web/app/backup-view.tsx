import { useSignal } from '@preact/signals';
import { useId } from 'preact/hooks';
import { type Backup, MAX_BACKUP, openBackup, sealBackup } from '../../../lib/companion/backup.ts';
import { readIssuedSession, readMailbox } from '../../../lib/companion/link/auth.ts';
import { type Endpoint, relayUrl } from '../../../lib/companion/link/endpoints.ts';
import type { Pairing } from '../../../lib/companion/link/settings.ts';
import { asObject, type JsonObject } from '../../../lib/kit/json.ts';
import { MIN_PASSPHRASE } from '../../../lib/kit/passphrase.ts';
import { Button, Notice, Question, TextField, useToast } from '../shared/components.tsx';
import { useT } from '../shared/i18n.ts';
import { messageOf } from '../shared/load.tsx';
import { useApp } from './context.ts';

/** Exports and imports the settings with the pairing, encrypted with a passphrase. */
export function BackupCard() {
  const t = useT();
  const { session, settings, api } = useApp();
  const toast = useToast();
  const id = useId();
  const passphrase = useSignal('');
  const error = useSignal('');
  const opened = useSignal<Backup | null>(null);
  const isUsable = passphrase.value.length >= MIN_PASSPHRASE;

  async function attempt(work: () => Promise<void>): Promise<void> {
    error.value = '';
    try {
      await work();
    } catch (failure) {
      error.value = messageOf(failure);
    }
  }

  const save = () =>
    attempt(async () => {
      // Sealed first, so that a failure changes nothing: only a session without its key works elsewhere.
      const prefix = session.token()?.slice(0, 8);
      const { bound: _, shared: __, ...pairing } = session.pairing.value ?? {};
      const text = await sealBackup(
        { settings: settings.all(), pairing: session.pairing.value && pairing, deviceId: session.deviceId },
        passphrase.value,
      );
      // If the token was renewed meanwhile, the relay refuses its old prefix.
      if (session.pairing.value?.bound) await api.call(`sessions/${prefix}/key`, { method: 'DELETE' });
      if (session.pairing.value) await session.share();
      const url = URL.createObjectURL(new Blob([text], { type: 'application/json' }));
      Object.assign(document.createElement('a'), { href: url, download: 'svc-backup.json' }).click();
      URL.revokeObjectURL(url);
    });

  const read = (file: File | undefined) =>
    attempt(async () => {
      if (!file) return;
      opened.value = await openBackup(await file.slice(0, MAX_BACKUP + 1).text(), passphrase.value);
    });

  const restore = ({ settings: stored, pairing, deviceId }: Backup) =>
    attempt(async () => {
      opened.value = null;
      if (pairing) await session.restore(pairingOf(pairing, session.endpoint), deviceId);
      settings.replace(stored);
      toast(t('Restored.'));
    });

  if (!isSecureContext) {
    return (
      <section class="card" aria-labelledby="backup">
        <h2 id="backup">{t('Backup')}</h2>
        <p class="small soft">{t('A backup needs a secure page: over plain http, browsers offer no encryption.')}</p>
      </section>
    );
  }
  return (
    <section class="card" aria-labelledby="backup">
      <h2 id="backup">{t('Backup')}</h2>
      <p class="small soft">
        {t('Settings and pairing in one file. Whoever has the file and its passphrase is this device.')}{' '}
        {t('Use it in one browser at a time: two that share a pairing sign each other out.')}{' '}
        {t('An export unbinds this session from the key of this browser, which cannot leave it.')}
      </p>
      <TextField
        label={t('Passphrase')}
        hint={t('At least {n} characters', { n: MIN_PASSPHRASE })}
        error={error.value === '' ? undefined : t(error.value)}
        of={passphrase}
        type="password"
        autocomplete="new-password"
      />
      <div class="row">
        <Button icon="download" disabled={!isUsable} onClick={() => void save()}>
          {t('Export')}
        </Button>
        <span class="pick">
          <input
            id={id}
            class="off-screen"
            type="file"
            accept="application/json"
            disabled={!isUsable}
            onChange={({ currentTarget }) => {
              void read(currentTarget.files?.[0]);
              currentTarget.value = '';
            }}
          />
          <label for={id} class="button">
            {t('Import')}
          </label>
        </span>
      </div>
      {opened.value && (
        <Question
          title={t('Replace settings and pairing?')}
          confirm={t('Replace')}
          isBusy={false}
          onConfirm={() => void restore(opened.value as Backup)}
          onClose={() => {
            opened.value = null;
          }}
        >
          <p>{t('The contents of the backup replace the settings and the pairing of this browser.')}</p>
          {opened.value.pairing && !isOf(opened.value.pairing, session.endpoint) && (
            <Notice tone="warn">
              {t(
                'The pairing was made at {place}. Continue only if this page, {own}, belongs to the same relay: it receives the token.',
                {
                  place: routesOf(opened.value.pairing).join(', ') || '–',
                  own: session.endpoint.url,
                },
              )}
            </Notice>
          )}
        </Question>
      )}
    </section>
  );
}

const isMailboxOf = ({ mailbox }: JsonObject, { url }: Endpoint): boolean => readMailbox(mailbox)?.url === url;
const isOf = (pairing: JsonObject, own: Endpoint): boolean =>
  isMailboxOf(pairing, own) || routesOf(pairing).includes(own.url);

/**
 * The pairing of a backup, if it is for this relay, or for its home if this relay is the mailbox.
 * @throws Error with a sentence for people.
 */
function pairingOf(backup: JsonObject, own: Endpoint): Pairing {
  const issued = readIssuedSession(backup);
  if (!issued) throw new Error('This backup holds no pairing.');
  const home = routesOf(backup).map((url, priority): Endpoint => ({ role: 'home', url, priority }));
  return {
    session_token: issued.sessionToken,
    refresh_token: issued.refreshToken,
    ...(isMailboxOf(backup, own)
      ? { endpoints: home, mailbox: readMailbox(backup.mailbox) }
      : { endpoints: [own], last_good: own.url }),
    tofu_pins: {},
    paired_at: typeof backup.paired_at === 'number' ? backup.paired_at : Date.now() / 1000,
    server_version: issued.serverVersion,
    expires_at: issued.expiresAt,
    grants: issued.grants,
    shared: true,
  };
}

/** The relay addresses of a pairing. */
const routesOf = ({ endpoints }: JsonObject): string[] =>
  (Array.isArray(endpoints) ? endpoints : []).flatMap((endpoint) => {
    const url = asObject(endpoint)?.url;
    return relayUrl(url) ?? [];
  });
