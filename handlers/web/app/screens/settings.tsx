import { SwitchRow } from '../../shared/components.tsx';
import { LANGUAGES, useT } from '../../shared/i18n.ts';
import { hrefOf } from '../../shared/router.ts';
import { BackupCard } from '../backup-view.tsx';
import { useApp } from '../context.ts';
import { LockCard } from '../lock/card.tsx';
import { NoticeSwitches } from '../notices/switches.tsx';
import { Connection } from '../settings/connection.tsx';
import { SettingChoice, SettingNumber, SettingSwitch } from '../settings/fields.tsx';
import { Unsupported } from '../settings/unsupported.tsx';

/**
 * Every setting of the specification (2.1 and 8): those that this browser supports, and why it does not support the others.
 */
export default function Settings() {
  return (
    <div class="screen">
      <Appearance />
      <ChatSettings />
      <NoticeSwitches />
      <Attachments />
      <Connection />
      <LockCard />
      <BackupCard />
      <Remembered />
      <Unsupported />
      <Details />
    </div>
  );
}

function Appearance() {
  const t = useT();
  const canTakeAccent = CSS.supports('color', 'oklch(from AccentColor 0.5 c h)');
  return (
    <section class="card" aria-labelledby="appearance">
      <h2 id="appearance">{t('Appearance')}</h2>
      <SettingChoice
        of="theme"
        label={t('Theme')}
        options={[
          ['system', t('As the system')],
          ['light', t('Light')],
          ['dark', t('Dark')],
        ]}
      />
      <SettingSwitch
        of="dynamic_colors"
        label={t('Dynamic colours')}
        hint={
          canTakeAccent
            ? t('Use the accent colour of the system, where the browser reveals it.')
            : t('No effect here: this browser does not tell a page the colours of the system.')
        }
      />
      <SettingChoice
        of="language"
        label={t('Language')}
        options={[['system', t('As the browser')], ...Object.entries(LANGUAGES)]}
      />
    </section>
  );
}

/** Keys and defaults, for comparison with those of the phone. */
function Details() {
  const t = useT();
  const { settings } = useApp();
  return (
    <div class="card">
      <SwitchRow
        label={t('Details')}
        hint={t('Show the key, the range and the default of each setting.')}
        checked={settings.values.settings_details.value}
        onChange={(isOn) => settings.set('settings_details', isOn)}
      />
    </div>
  );
}

function ChatSettings() {
  const t = useT();
  return (
    <section class="card" aria-labelledby="chat-settings">
      <h2 id="chat-settings">{t('Chat')}</h2>
      <SettingSwitch
        of="show_reasoning"
        label={t('Show reasoning')}
        hint={t('What the model thinks before it answers, folded.')}
      />
      <SettingSwitch
        of="show_token_usage"
        label={t('Show token usage')}
        hint={t('Below each answer, where the API server reports it.')}
      />
      <SettingChoice
        of="tool_display"
        label={t('Tool calls')}
        options={[
          ['off', t('Off')],
          ['compact', t('Compact')],
          ['detailed', t('Detailed')],
        ]}
      />
    </section>
  );
}

function Attachments() {
  const t = useT();
  return (
    <section class="card" aria-labelledby="attachments">
      <h2 id="attachments">{t('Attachments')}</h2>
      <SettingNumber
        of="max_inbound_mb"
        label={t('Largest file to load, MB')}
        hint={t(
          'Larger files are not loaded whole: video and sound are played in parts, and downloads go straight to the disk.',
        )}
      />
      <SettingNumber
        of="auto_fetch_mb"
        label={t('Load automatically up to, MB')}
        hint={t('Larger files wait until you open them.')}
      />
      <SettingSwitch
        of="auto_fetch_on_cellular"
        label={t('Load automatically over mobile networks')}
        hint={t('When off, every file waits until you open it, if the browser reports a mobile network.')}
      />
    </section>
  );
}

/** Facts that the page remembers automatically. */
function Remembered() {
  const t = useT();
  const { session, settings } = useApp();
  const { last_session, onboarding_complete, last_seen_version, settings_details: details } = settings.values;
  const rows = [
    ['last_session', t('Conversation that was open last'), last_session.value || '–'],
    ['onboarding_complete', t('Introduction read'), onboarding_complete.value ? t('yes') : t('no')],
    ['last_seen_version', t('Version whose news you have seen'), last_seen_version.value || '–'],
    ['device_id', t('Device ID of this browser'), session.deviceId],
  ] as const;
  return (
    <section class="card" aria-labelledby="remembered">
      <h2 id="remembered">{t('What this page remembers')}</h2>
      <dl class="reasons">
        {rows.map(([key, meaning, value]) => [
          <dt key={key} class="small">
            {meaning}
            {details.value && (
              <>
                {' '}
                · <code>{key}</code>
              </>
            )}
          </dt>,
          <dd key={`${key} value`} class="small soft">
            <code>{value}</code>
          </dd>,
        ])}
      </dl>
      <p class="small soft">{t('Times, tokens and failures are measured in memory only.')}</p>
      <div class="row">
        <a class="button" href={hrefOf('usage')}>
          {t('See them under Usage')}
        </a>
      </div>
    </section>
  );
}
