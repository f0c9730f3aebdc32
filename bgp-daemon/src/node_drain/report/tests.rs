use calico_model::DrainStage;
use calico_store::KeyRange;
use etcd_lite::Local;

use super::*;

fn report(stage: DrainStage) -> DrainReport {
    DrainReport {
        since: "noon".to_owned(),
        stage,
        ..DrainReport::default()
    }
}

async fn stored(store: &dyn Store) -> Option<DrainReport> {
    let range = KeyRange::key("/cambric/v1/drain-report/n1");
    let listing = store.list(range).await.expect("a list");
    let item = listing.items.first()?;
    Some(DrainReport::parse(&item.value).expect("a report"))
}

#[tokio::test]
async fn stored_report_follows_the_wanted_one() {
    let store: Arc<dyn Store> = Arc::new(Local::empty());
    let mut task = ReportTask::new("n1", Arc::clone(&store));
    for stage in [DrainStage::Services, DrainStage::All, DrainStage::Drained] {
        task.want(Some(report(stage)));
        task.next().await;
        assert_eq!(stored(&*store).await, Some(report(stage)));
        assert_eq!(task.trouble(), None);
    }
    task.want(None);
    task.next().await;
    assert_eq!(stored(&*store).await, None);
}

#[tokio::test]
async fn report_of_a_former_drain_is_removed() {
    let store: Arc<dyn Store> = Arc::new(Local::empty());
    let former = report(DrainStage::Drained);
    let key = "/cambric/v1/drain-report/n1";
    let put = store.put(key.into(), former.encode().into(), LeaseId::NONE);
    put.await.expect("put");
    let mut task = ReportTask::new("n1", Arc::clone(&store));
    task.see(Some(&former));
    task.next().await;
    assert_eq!(stored(&*store).await, None);
}
