import { useSignal } from '@preact/signals';
import { useEffect, useRef } from 'preact/hooks';
import { Button, Choice, Dialog, Notice } from '../../shared/components.tsx';
import { useI18n } from '../../shared/i18n.ts';
import { LoadedView, messageOf, useLoad } from '../../shared/load.tsx';
import { useApp } from '../context.ts';
import { SettingSwitch } from '../settings/fields.tsx';
import { chooseVoice, chosenVoice, loadVoices, type Voices, type VoiceUse } from './choice.ts';
import { type Rendering, renderingOf, speakOutput } from './output.ts';

/** Percent. */
const SPEEDS = [50, 75, 90, 100, 110, 125, 150, 200];
/** Languages offered in addition to the provider's. */
const LANGUAGES = ['en', 'de', 'es', 'ja', 'pt', 'zh'];

/** Sound of the agent, and whether its captions are shown. Changes apply at once, and are stored in this browser. */
export function VoiceSettings({ use, onClose }: { use: VoiceUse; onClose(): void }) {
  const { t } = useI18n();
  const app = useApp();
  const { state, reload } = useLoad((signal) => loadVoices(app, use, signal), [use]);
  return (
    <Dialog title={t('Voice settings')} cancelText={t('Close')} onClose={onClose}>
      {use === 'live' && (
        <div class="list">
          <SettingSwitch
            of="voice_captions"
            label={t('Captions')}
            hint={t('Shows captions of you and the agent as you speak.')}
          />
        </div>
      )}
      <LoadedView state={state} reload={reload}>
        {(voices) => <VoiceChoice voices={voices} use={use} />}
      </LoadedView>
      {use === 'spoken' && <Speech languages={state.value.data?.languages ?? []} />}
    </Dialog>
  );
}

/** The voice, and how it sounds. */
function VoiceChoice({ voices: { provider, model, usual, rate, voices }, use }: { voices: Voices; use: VoiceUse }) {
  const { t } = useI18n();
  const app = useApp();
  const error = useSignal('');
  /** Ends the running preview. */
  const preview = useSignal<AbortController | null>(null);
  const latest = useRef(preview);
  useEffect(() => () => latest.current.peek()?.abort(), []);
  const chosen = chosenVoice(app, use, provider);
  const isPlaying = preview.value !== null;

  function rendering(): Rendering {
    const voice = chosen ?? usual;
    if (use === 'spoken') return renderingOf(app, { rate, voice });
    const request = { render_mode: 'verbatim' };
    return { path: 'voice/realtime', body: { provider, model, voice }, request, rate };
  }

  async function play(): Promise<void> {
    const over = new AbortController();
    [preview.value, error.value] = [over, ''];
    try {
      const text = t('Hello! This is what I sound like.');
      const wasHeard = await speakOutput(app, { text, rendering: rendering(), over: over.signal, onSound: () => {} });
      if (!wasHeard) error.value = 'The provider has sent no sound. Look at the configuration of the relay.';
    } catch (reason) {
      if (!over.signal.aborted) error.value = messageOf(reason);
    } finally {
      if (preview.peek() === over) preview.value = null;
    }
  }

  function stop(): void {
    preview.value?.abort();
    preview.value = null;
  }

  return (
    <>
      <Choice
        label={t('Voice')}
        hint={use === 'live' ? t('Holds from the next conversation on.') : undefined}
        value={chosen ?? ''}
        options={[
          ['', t('As the relay is configured: {voice}', { voice: usual })],
          ...voices.map(({ id, label }) => [id, label] as const),
        ]}
        onChange={(voice) => {
          stop();
          chooseVoice(app, use, provider, voice);
        }}
      />
      <div class="row">
        <Button icon={isPlaying ? 'stop' : 'play'} onClick={() => (isPlaying ? stop() : void play())}>
          {isPlaying ? t('Stop') : t('Listen to it')}
        </Button>
      </div>
      {error.value !== '' && <Notice tone="bad">{t(error.value)}</Notice>}
    </>
  );
}

/** Speed and language of spoken answers. */
function Speech({ languages }: { languages: readonly string[] }) {
  const { t, language } = useI18n();
  const { settings } = useApp();
  const { voice_speed: speed, voice_language: chosen } = settings.values;
  const names = new Intl.DisplayNames([language], { type: 'language' });
  const tags = [...new Set([chosen.value, ...languages, ...LANGUAGES])].filter((tag) => tag !== '');
  return (
    <>
      <Choice
        label={t('Speaking rate')}
        value={String(speed.value)}
        options={SPEEDS.map((percent) => [String(percent), `${percent} %`])}
        onChange={(percent) => settings.set('voice_speed', Number(percent))}
      />
      <Choice
        label={t('Language of the answers')}
        hint={t('Some voices speak one language only.')}
        value={chosen.value}
        options={[['', t('As the relay is configured')], ...tags.map((tag) => [tag, nameOf(names, tag)] as const)]}
        onChange={(tag) => settings.set('voice_language', tag)}
      />
    </>
  );
}

/** A provider may return an invalid language tag. */
function nameOf(names: Intl.DisplayNames, tag: string): string {
  try {
    return names.of(tag) ?? tag;
  } catch {
    return tag;
  }
}
