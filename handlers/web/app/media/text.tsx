import type { ComponentChildren } from 'preact';
import { useMemo } from 'preact/hooks';
import { sizeText } from '../../shared/ages.ts';
import { Button, Loading } from '../../shared/components.tsx';
import { useT } from '../../shared/i18n.ts';
import { Icon } from '../../shared/icons.tsx';
import { useLoad } from '../../shared/load.tsx';
import { useApp } from '../context.ts';
import { useFlag } from '../flag.ts';
import { createMedia, type MediaPlace } from './media.ts';
import { type Reference, splitAtReferences } from './references.ts';
import { MediaView, Shown } from './view.tsx';

interface TextProps {
  text: string;
  /** Renders the text between the files. */
  children(text: string): ComponentChildren;
}

/** A text with the files that it refers to. */
export function TextWithMedia({ text, children }: TextProps) {
  const pieces = useMemo(() => splitAtReferences(text, true), [text]);
  return (
    <>
      {pieces.map((piece, index) =>
        typeof piece === 'string' ? (
          <div key={index}>{children(piece)}</div>
        ) : (
          <ReferenceView key={index} reference={piece} />
        ),
      )}
    </>
  );
}

export function ReferenceView({ reference }: { reference: Reference }) {
  const t = useT();
  const { session, retained } = useApp();
  const media = retained(createMedia);
  const { place, name, isSensitive } = reference;
  if ('data' in place) {
    return media.isAllowed(place.data.length) ? (
      <div class="medium">
        <Shown medium={{ name: name || t('Picture'), type: 'image/png', isSensitive }} url={place.data} />
      </div>
    ) : (
      <Unavailable reason={t('The file is larger than your settings allow: raise the limit for attachments there.')} />
    );
  }
  if (!session.may('files')) return <Unavailable reason={t('This device may not load files.')} />;
  return <RelayFile place={place} name={name} isSensitive={isSensitive} />;
}

/** A file of the relay: loaded automatically if it is small, else on a tap. */
function RelayFile({ place, name, isSensitive }: { place: MediaPlace; name: string; isSensitive: boolean }) {
  const t = useT();
  const { session, retained } = useApp();
  const media = retained(createMedia);
  const wanted = useFlag();
  const { state, reload } = useLoad((signal) => media.look(place, name, signal), [session.isOnline.value]);
  const { data, error } = state.value;
  if (!data) return error === undefined ? <Loading /> : <Unavailable reason={t(error)} onRetry={reload} />;
  const medium = { ...data, name: data.name || t('File'), isSensitive: data.isSensitive || isSensitive };
  return (
    <div class="medium">
      {wanted.isOn || medium.copy || media.isSmall(medium.size) ? (
        <MediaView medium={medium} />
      ) : (
        <p class="row">
          <Icon name="files" />
          <span class="grow">
            {medium.name} <span class="small soft">{sizeText(medium.size)}</span>
          </span>
          <Button icon="download" onClick={wanted.on}>
            {t('Load')}
          </Button>
        </p>
      )}
    </div>
  );
}

/** Shown in place of a file, with the reason and without a path. */
function Unavailable({ reason, onRetry }: { reason: string; onRetry?(): void }) {
  const t = useT();
  return (
    <div class="medium">
      <p class="row">
        <Icon name="warning" />
        <span class="grow">
          {t('File unavailable')} <span class="small soft">{reason}</span>
        </span>
        {onRetry && <Button icon="refresh" label={t('Retry')} onClick={onRetry} />}
      </p>
    </div>
  );
}
