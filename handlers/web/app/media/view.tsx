import { useEffect, useMemo } from 'preact/hooks';
import { sizeText } from '../../shared/ages.ts';
import { Button, Notice, useToast } from '../../shared/components.tsx';
import { useT } from '../../shared/i18n.ts';
import { Icon } from '../../shared/icons.tsx';
import { LoadedView, messageOf, useLoad } from '../../shared/load.tsx';
import { useApp } from '../context.ts';
import { useFlag } from '../flag.ts';
import { createMedia, type Medium } from './media.ts';

type Kind = 'picture' | 'video' | 'audio' | 'other';

function kindOf(type: string): Kind {
  if (/^image\/(?!svg)/.test(type)) return 'picture';
  if (type.startsWith('video/')) return 'video';
  return type.startsWith('audio/') ? 'audio' : 'other';
}

/** A file, shown if the browser can, with its type, its size, and a button to save it. */
export function MediaView({ medium }: { medium: Medium }) {
  const t = useT();
  const media = useApp().retained(createMedia);
  const { place, copy, isSealed } = medium;
  // The address must not change when the link moves between home and mailbox: the medium would load again.
  const address = useMemo(() => media.addressOf(medium), [place, copy, isSealed]);
  const isAllowed = copy !== undefined || media.isAllowed(medium.size);
  const isStreamed = address !== null && ['video', 'audio'].includes(kindOf(medium.type));
  return (
    <>
      {medium.note !== undefined && <Notice tone="warn">{t(medium.note)}</Notice>}
      {!isAllowed && !isStreamed && (
        <Notice tone="warn">
          {t('The file is larger than your settings allow: raise the limit for attachments there.')}
        </Notice>
      )}
      {address === null ? isAllowed && <Whole medium={medium} /> : <Streamed {...{ medium, address, isAllowed }} />}
    </>
  );
}

/** Through the service worker: elements request the ranges that they need. */
function Streamed({ medium, address, isAllowed }: { medium: Medium; address: string; isAllowed: boolean }) {
  const t = useT();
  const toast = useToast();
  const media = useApp().retained(createMedia);
  return (
    <>
      {(isAllowed || kindOf(medium.type) !== 'picture') && <Shown medium={medium} url={address} />}
      <MediumDetails medium={medium} />
      <Button icon="download" onClick={() => void media.save(medium).catch((error) => toast(t(messageOf(error))))}>
        {t('Download')}
      </Button>
    </>
  );
}

/** Without a service worker, a file is loaded before it is shown. */
function Whole({ medium }: { medium: Medium }) {
  const media = useApp().retained(createMedia);
  const loaded = useLoad((signal) => media.load(medium, signal));
  return <LoadedView {...loaded}>{(blob) => <Loaded medium={medium} blob={blob} />}</LoadedView>;
}

function Loaded({ medium: { isSealed, ...given }, blob }: { medium: Medium; blob: Blob }) {
  const t = useT();
  const { name, type, size } = blob as File;
  const medium = isSealed ? { ...given, name, type, size } : given;
  const url = useMemo(() => URL.createObjectURL(blob), [blob]);
  useEffect(() => () => URL.revokeObjectURL(url), [url]);
  return (
    <>
      <Shown medium={medium} url={url} />
      <MediumDetails medium={medium} />
      <a class="button" href={url} download={medium.name}>
        <Icon name="download" /> {t('Download')}
      </a>
    </>
  );
}

const MediumDetails = ({ medium }: { medium: Medium }) => (
  <p class="small soft">
    {medium.type} · {sizeText(medium.size)}
  </p>
);

interface ShownProps {
  medium: Pick<Medium, 'name' | 'type' | 'isSensitive'>;
  url: string;
}

/** The file itself, blurred and silent until requested if the agent has marked it as sensitive. */
export function Shown({ medium, url }: ShownProps) {
  const t = useT();
  const shown = useFlag(!medium.isSensitive);
  const broken = useFlag();
  const kind = kindOf(medium.type);
  const shared = {
    class: shown.isOn ? 'shown' : 'shown blurred',
    src: url,
    onError: broken.on,
  };
  const sounding = { ...shared, controls: shown.isOn, preload: 'metadata', 'aria-label': medium.name } as const;
  return (
    <>
      {broken.isOn && <Notice tone="warn">{t('This browser cannot show the file.')}</Notice>}
      {!broken.isOn && kind === 'picture' && <img {...shared} alt={medium.name} />}
      {!broken.isOn && kind === 'video' && <video {...sounding} playsInline />}
      {!broken.isOn && kind === 'audio' && <audio {...sounding} />}
      {!shown.isOn && (
        <Notice tone="warn" action={<Button onClick={shown.on}>{t('Show')}</Button>}>
          {t('The agent has marked this file as sensitive.')}
        </Notice>
      )}
    </>
  );
}
